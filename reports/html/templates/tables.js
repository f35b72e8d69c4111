"use strict";

// Tables: sorting, filtering, folding, hiding columns, copying. Without script they are complete, in
// the order in which they were written.
globalThis.tables = (() => {
  // Rows that are shown before the others are folded away.
  const ROWS_SHOWN = 25;
  const ROWS_WITHOUT_FILTER = 20;
  const LEAST_NAME_PX = 220;
  const PREFIXES = { n: 1e-9, µ: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };
  // "at least 1.64 G", "86.2 µs", "3.77 TB/s", "33.4%", "+1.2 ms".
  const QUANTITY = /^(?:at least |about |up to |<)?([+\-−]?\d[\d\u00a0\u202f]*(?:\.\d+)?(?:e[+-]?\d+)?)\s*(?:([nµmkMGTPE])(?=$|\s|[sBFW])|%|x\b|\S*)/u;

  // A row of several lines is a body of its own, which begins with its figures.
  const rowsOf = (table) => (table.tBodies.length === 1
    ? [...table.tBodies[0].rows]
    : [...table.tBodies].map((body) => body.rows[0]));
  const wholeOf = (table, row) => (table.tBodies.length === 1 ? row : row.parentElement);
  const heads = (table) => [...table.tHead.rows[0].cells];
  const textOf = (cell) => {
    const title = cell.querySelector(".title");
    const parts = title ? [title] : [...cell.childNodes];
    return parts.map((part) => part.textContent.trim()).filter(Boolean).join(" ");
  };

  // A number, else "" where it is unknown and the text itself where it is none.
  function quantity(text) {
    if (text === "" || text === "-") return "";
    const found = QUANTITY.exec(text);
    if (!found) return text;
    return Number(found[1].replace(/[\u00a0\u202f]/g, "").replace("−", "-")) * (PREFIXES[found[2]] ?? 1);
  }

  function compare(a, b, direction) {
    // Unknown values stay last in both directions.
    if (a === "" || b === "") return (a === "") - (b === "");
    if (typeof a === "number" && typeof b === "number") return direction * (a - b);
    return direction * String(a).localeCompare(String(b), undefined, { numeric: true });
  }

  function valueOf(cell, numeric) {
    const value = cell.dataset.value;
    if (value === undefined) return numeric ? quantity(textOf(cell)) : textOf(cell);
    return numeric && value !== "" ? Number(value) : value;
  }

  // One way, the other, and as they were.
  function sortBy(table, header) {
    const numeric = header.dataset.sort === "number" || header.classList.contains("number");
    const ways = numeric ? ["descending", "ascending", null] : ["ascending", "descending", null];
    const order = ways[(ways.indexOf(header.getAttribute("aria-sort")) + 1) % ways.length];
    const rows = rowsOf(table);
    rows.forEach((row, index) => { row.place ??= index; });
    const direction = order === "ascending" ? 1 : -1;
    const keyed = rows.map((row) => [order ? valueOf(row.cells[header.cellIndex], numeric) : row.place, row]);
    keyed.sort(([a], [b]) => compare(a, b, order ? direction : 1));
    const parent = table.tBodies.length === 1 ? table.tBodies[0] : table;
    parent.append(...keyed.map(([, row]) => wholeOf(table, row)));
    if (table.classList.contains("folded")) table.fold(true);
    for (const other of heads(table)) other.removeAttribute("aria-sort");
    if (order) header.setAttribute("aria-sort", order);
  }

  function makeSortable(table) {
    for (const header of heads(table)) {
      // A column of drawings has no head.
      if (!header.textContent.trim()) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      button.addEventListener("click", () => sortBy(table, header));
      header.replaceChildren(button);
    }
  }

  // ", 12.3% of device time" where rows have a share of it.
  function shareOf(rows) {
    const cells = rows.map((row) => row.querySelector(".share")).filter(Boolean);
    const share = cells.reduce((sum, cell) => sum + Number(cell.dataset.value), 0);
    return share ? `, ${(100 * share).toFixed(1)}% of device time` : "";
  }

  const inputOf = (table) => document.querySelector(`input[data-table="${table.id}"]`);

  function filter(table) {
    const input = inputOf(table);
    const rows = rowsOf(table);
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      row.searchText ??= wholeOf(table, row).textContent.toLowerCase();
      wholeOf(table, row).hidden = !words.every((word) => row.searchText.includes(word));
    }
    const shown = rows.filter((row) => !wholeOf(table, row).hidden);
    // What was searched for may lie in the fold.
    table.classList.toggle("filtered", words.length > 0);
    input.closest(".tools").querySelector("output").textContent = words.length
      ? `${shown.length} of ${rows.length} rows${shareOf(shown)}`
      : "";
  }

  function empty(table) {
    const input = inputOf(table);
    if (!input) return;
    input.value = "";
    filter(table);
  }

  function button(text, action) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", action);
    return made;
  }

  // Rows after the first few of them are folded, in whatever order they stand.
  function makeFoldable(table) {
    const number = rowsOf(table).length;
    const shown = Number(table.dataset.fold ?? ROWS_SHOWN);
    if (number <= shown * 1.2) return;
    const opener = button("", () => fold(!table.classList.contains("folded")));
    const fold = (folded) => {
      table.classList.toggle("folded", folded);
      rowsOf(table).forEach((row, index) =>
        wholeOf(table, row).classList.toggle("in-fold", folded && index >= shown));
      const share = shareOf(rowsOf(table).slice(shown));
      opener.textContent = folded ? `${number - shown} more rows${share}` : `only the first ${shown} rows`;
      opener.setAttribute("aria-expanded", String(!folded));
    };
    table.fold = fold;
    opener.className = "opener";
    (table.closest(".scroll") ?? table).after(opener);
    fold(true);
  }

  // Columns of figures have widths of their own, and the first one what is left: more of them make
  // the table scroll.
  function keepRoomForNames(table) {
    if (getComputedStyle(table).tableLayout !== "fixed") return;
    const widths = heads(table).slice(1).map((header) => header.getBoundingClientRect().width);
    const isTable = getComputedStyle(table).display === "table";
    const least = LEAST_NAME_PX + widths.reduce((sum, width) => sum + width, 0);
    table.style.minWidth = isTable ? `${least}px` : "";
  }

  // Which columns are shown is one style for each column: rows may be many.
  function columnsMenu(table) {
    const menu = document.createElement("details");
    const summary = document.createElement("summary");
    const style = document.createElement("style");
    const choices = document.createElement("div");
    summary.textContent = "Columns";
    menu.className = "choices";
    menu.append(summary, choices, style);
    const chosen = new Map();
    const rules = () => [...chosen].map(([index, shown]) => {
      const cells = `#${table.id} :is(tr, colgroup) > :nth-child(${index + 1})`;
      return `${cells} { display: ${shown ? "revert" : "none"}; }`;
    });
    // The first column names the row.
    for (const [index, header] of heads(table).entries()) {
      if (!index || !header.textContent.trim()) continue;
      const label = document.createElement("label");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.addEventListener("change", () => {
        chosen.set(index, box.checked);
        style.textContent = rules().join("\n");
        keepRoomForNames(table);
      });
      label.append(box, ` ${header.textContent}`);
      choices.append(label);
      // A narrow screen shows less of them.
      menu.addEventListener("toggle", () => { box.checked = header.getClientRects().length > 0; });
    }
    document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      event.preventDefault();
      menu.open = false;
      summary.focus();
    });
    return menu;
  }

  // Text of a capture that a spreadsheet would take for a formula stays text.
  function field(text) {
    const safe = /^[=+@\t\r-]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  // What is shown, in its order, with names and shapes as they were recorded.
  function csv(table) {
    const columns = heads(table)
      .filter((header) => header.textContent.trim() && header.getClientRects().length);
    const named = columns.map((header) => header.dataset.csv ?? header.textContent);
    const rows = rowsOf(table).filter((row) => !wholeOf(table, row).hidden);
    const recorded = rows.some((row) => wholeOf(table, row).dataset.key) ? ["Recorded name"] : [];
    const where = rows.some((row) => row.querySelector(".subtitle")) ? ["Where", "Recorded shapes"] : [];
    const lines = rows.map((row) => {
      const subtitle = row.querySelector(".subtitle");
      return [
        ...columns.map((header) => {
          const cell = row.cells[header.cellIndex];
          return header.dataset.csv && cell.dataset.value !== undefined ? cell.dataset.value : textOf(cell);
        }),
        ...recorded.map(() => wholeOf(table, row).dataset.key ?? ""),
        ...(where.length ? [subtitle?.textContent ?? "", subtitle?.title ?? ""] : []),
      ];
    });
    return [[...named, ...recorded, ...where], ...lines]
      .map((line) => `${line.map(field).join(",")}\r\n`).join("");
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // A page in a frame or without rights, as in a notebook, copies what is selected.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const copied = document.execCommand("copy");
      area.remove();
      return copied;
    }
    return true;
  }

  function copyButton(table) {
    const made = button("Copy as CSV", async () => {
      const isCopied = await copy(csv(table));
      made.textContent = isCopied ? "Copied" : "This browser does not let a page copy";
      setTimeout(() => { made.textContent = "Copy as CSV"; }, 2000);
    });
    made.setAttribute("aria-live", "polite");
    return made;
  }

  // The rest of a table that is folded away behind it without script.
  function join(table) {
    const rest = table.closest(".scroll")?.nextElementSibling;
    if (!rest?.matches("details[data-continues]")) return;
    table.dataset.fold = table.tBodies[0].rows.length;
    table.tBodies[0].append(...rest.querySelector("tbody").rows);
    rest.remove();
  }

  function filterOf(table) {
    const label = document.createElement("label");
    const input = document.createElement("input");
    input.type = "search";
    input.dataset.table = table.id;
    input.autocomplete = "off";
    input.spellcheck = false;
    label.append("Filter ", input);
    return label;
  }

  function makeTools(table) {
    const tools = inputOf(table)?.closest(".tools");
    if (tools) {
      tools.hidden = false;
      tools.querySelector("output").before(columnsMenu(table), copyButton(table));
      return;
    }
    const own = document.createElement("div");
    const scroll = table.closest(".scroll");
    if (rowsOf(table).length > ROWS_WITHOUT_FILTER) {
      own.className = "tools";
      own.append(
        filterOf(table), columnsMenu(table), copyButton(table), document.createElement("output"));
      scroll.before(own);
      return;
    }
    // A short table shows them while one is at it.
    own.className = "own-tools";
    own.append(columnsMenu(table), copyButton(table));
    const around = document.createElement("div");
    around.className = "with-tools";
    scroll.before(around);
    around.append(own, scroll);
  }

  let number = 0;
  for (const table of document.querySelectorAll(".scroll > :is(table.points, table.plain)")) {
    if (!table.tHead || !table.tBodies.length) continue;
    table.id ||= `table-${(number += 1)}`;
    join(table);
    makeFoldable(table);
    if (rowsOf(table).length > 1) makeTools(table);
    makeSortable(table);
  }
  for (const input of document.querySelectorAll('input[type="search"]')) {
    const table = document.getElementById(input.dataset.table);
    input.addEventListener("input", () => filter(table));
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      empty(table);
      input.blur();
    });
  }

  // Of a name that is shown shortened, the whole one.
  document.addEventListener("mouseover", ({ target }) => {
    const title = target.closest?.("[data-key] .title");
    const recorded = title?.closest("[data-key]").dataset.key;
    if (title && recorded !== title.textContent) title.title = recorded;
  });

  return {
    // Makes `row` one that is shown: out of what a filter or a fold hides.
    reveal(row) {
      const table = row.closest("table");
      if (row.hidden) empty(table);
      if (table && !row.getClientRects().length) table.fold?.(false);
    },
  };
})();
