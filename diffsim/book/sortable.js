(function () {
  var root = document.currentScript.parentElement;
  var body = root.querySelector("tbody");
  var rows = Array.prototype.slice.call(body.rows);
  var heads = Array.prototype.slice.call(root.querySelectorAll("thead th"));
  var filters = Array.prototype.slice.call(root.querySelectorAll("select"));
  var say = root.querySelector("[data-say]");
  var order = "";

  function key(row, column) {
    var cell = row.cells[column];
    var number = cell.getAttribute("data-number");
    return number === null ? cell.textContent : Number(number);
  }

  // Numbers before texts; what is empty stays last in both directions.
  function compare(a, b, sign) {
    if (a === "" || b === "") { return (a === "") - (b === ""); }
    if (typeof a !== typeof b) { return typeof a === "number" ? -sign : sign; }
    return sign * (typeof a === "number" ? (a > b) - (a < b) : a.localeCompare(b, "en"));
  }

  function tell() {
    var shown = rows.filter(function (row) { return !row.hidden; }).length;
    say.textContent = shown + " of " + rows.length + " rows" + order + ".";
  }

  function sort(column) {
    var head = heads[column];
    var direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    heads.forEach(function (each) {
      each.removeAttribute("aria-sort");
      each.querySelector("[data-arrow]").textContent = " \u2195";
    });
    head.setAttribute("aria-sort", direction);
    head.querySelector("[data-arrow]").textContent = direction === "ascending" ? " \u25B2" : " \u25BC";
    var sign = direction === "ascending" ? 1 : -1;
    rows.sort(function (a, b) { return compare(key(a, column), key(b, column), sign); });
    rows.forEach(function (row) { body.appendChild(row); });
    order = ", sorted by " + head.querySelector("button").firstChild.textContent + ", " + direction;
    tell();
  }

  function filter() {
    rows.forEach(function (row) {
      row.hidden = filters.some(function (select) {
        return select.selectedIndex > 0 && row.cells[Number(select.dataset.column)].textContent !== select.value;
      });
    });
    tell();
  }

  // A page without scripts keeps plain headings and no controls.
  heads.forEach(function (head, column) {
    var button = document.createElement("button");
    var arrow = document.createElement("span");
    button.type = "button";
    button.style.cssText = "background:none;border:0;color:inherit;cursor:pointer;font:inherit;padding:0.2rem 0;text-align:left";
    arrow.setAttribute("aria-hidden", "true");
    arrow.setAttribute("data-arrow", "");
    arrow.textContent = " \u2195";
    button.append(document.createTextNode(head.textContent), arrow);
    button.addEventListener("click", function () { sort(column); });
    head.replaceChildren(button);
  });
  filters.forEach(function (select) {
    select.selectedIndex = 0;
    select.addEventListener("change", filter);
    select.closest("[data-filters]").hidden = false;
  });
})();
