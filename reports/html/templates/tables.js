"use strict";

// Tables: sorting and filtering. Without script they are complete, in order of device time.
(() => {
  const valueOf = (row, column) => row.cells[column].dataset.value ?? row.cells[column].innerText;

  function compare(a, b, numeric, direction) {
    // Unknown values stay last in both directions.
    if (a === "" || b === "") return (a === "") - (b === "");
    return direction * (numeric ? a - b : a.localeCompare(b));
  }

  function sortBy(table, header) {
    const numeric = header.dataset.sort === "number";
    const first = numeric ? "descending" : "ascending";
    const second = numeric ? "ascending" : "descending";
    const order = header.getAttribute("aria-sort") === first ? second : first;
    const direction = order === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [valueOf(row, header.cellIndex), row]);
    rows.sort(([a], [b]) => compare(a, b, numeric, direction));
    body.append(...rows.map(([, row]) => row));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", order);
  }

  function filter(input) {
    const rows = [...document.getElementById(input.dataset.table).tBodies[0].rows];
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    let share = 0;
    for (const row of rows) {
      row.searchText ??= row.textContent.toLowerCase();
      row.hidden = !words.every((word) => row.searchText.includes(word));
      if (row.hidden) continue;
      shown += 1;
      share += Number(row.querySelector(".share")?.dataset.value ?? 0);
    }
    const output = input.closest(".tools").querySelector("output");
    output.textContent = words.length
      ? `${shown} of ${rows.length} rows` +
        (share ? `, ${(100 * share).toFixed(1)}% of device time` : "")
      : "";
  }

  for (const table of document.querySelectorAll("table.points")) {
    for (const header of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      button.addEventListener("click", () => sortBy(table, header));
      header.replaceChildren(button);
    }
  }

  const inputs = [...document.querySelectorAll('input[type="search"]')];
  for (const input of inputs) {
    input.closest(".tools").hidden = false;
    input.addEventListener("input", () => filter(input));
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      input.value = "";
      filter(input);
      input.blur();
    });
  }
})();
