"use strict";

// Keys of all pages: / goes to a filter, the arrows from row to row, ? says which keys there are.
(() => {
  const inputs = [...document.querySelectorAll('input[type="search"]')];

  // A row that opens is reached by what opens it; one that is only selected is itself a stop, the
  // first of its table for the Tab key.
  for (const table of document.querySelectorAll("table")) {
    const rows = table.querySelectorAll("tr[data-kind]:not(:has(summary))");
    for (const [index, row] of rows.entries()) row.tabIndex = index ? -1 : 0;
  }

  // The filter of the table that is on screen, or of the next one below.
  function goToFilter() {
    const isBelow = (input) => input.closest("section").getBoundingClientRect().bottom > 80;
    const input = inputs.find(isBelow) ?? inputs[0];
    input?.focus();
    return Boolean(input);
  }

  const stops = (table) =>
    [...table.tBodies]
      .flatMap((body) => [...body.rows])
      .filter((row) => row.getClientRects().length)
      .map((row) => row.querySelector("summary") ?? (row.dataset.kind && row))
      .filter(Boolean);

  // From a row, its summary or a table's filter; false where nothing is there to move to.
  function move(target, key) {
    const table = target.matches('input[type="search"]')
      ? document.getElementById(target.dataset.table)
      : target.closest("tbody tr")?.closest("table");
    if (!table) return false;
    const all = stops(table);
    const at = all.findIndex((stop) => stop.closest("tr").contains(target));
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[key];
    if (!all[next]) return false;
    all[next].focus({ preventScroll: true });
    all[next].scrollIntoView({ block: "nearest", behavior: "instant" });
    return true;
  }

  function help() {
    const dialog = document.getElementById("keys");
    if (dialog.open) dialog.close();
    else dialog.showModal();
    return true;
  }

  const opener = document.querySelector("button.keys");
  opener.hidden = false;
  opener.addEventListener("click", help);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const { key, target } = event;
    const isTyping = target.matches?.("input, textarea, select, [contenteditable]");
    const isArrow = ["ArrowDown", "ArrowUp"].includes(key) || (!isTyping && ["Home", "End"].includes(key));
    if (key === "Enter" && target.matches?.("tr[data-kind]")) target.click();
    const isDone =
      (key === "/" && !isTyping && goToFilter()) ||
      (key === "?" && !isTyping && help()) ||
      (isArrow && target.closest && move(target, key));
    if (isDone) event.preventDefault();
  });
})();
