// Mends the theme. Names must contain what is seen, the sidebar must lie in a landmark, an entry of a list must
// say so, and regions that scroll must be reachable by keyboard.
document.addEventListener("DOMContentLoaded", function () {
  function each(selector, mend) { document.querySelectorAll(selector).forEach(mend); }

  each(".search-button-field", function (button) { button.removeAttribute("aria-label"); });
  each(".bd-sidebar-primary", function (bar) {
    bar.setAttribute("role", "region");
    bar.setAttribute("aria-label", "Sidebar");
  });
  each("[role=doc-biblioentry]", function (entry) { entry.setAttribute("role", "listitem"); });

  // Tells of each box when it is first laid out, resized or unfolded.
  var sizes = new ResizeObserver(function (changes) {
    changes.forEach(function (change) {
      if (change.target.scrollWidth > change.target.clientWidth) { change.target.tabIndex = 0; }
    });
  });
  function watch() {
    each("pre, mjx-container, .output, .pst-scrollable-table-container", function (box) { sizes.observe(box); });
  }
  watch();
  // Formulas come later, where a page has any.
  window.addEventListener("load", function () {
    if (window.MathJax && MathJax.startup) { MathJax.startup.promise.then(watch); }
  });
});
