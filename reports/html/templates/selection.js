"use strict";

// One thing is selected at a time, in all of the page. Who lets a reader choose dispatches
// `gpuprof:select` on the document, with the detail { kind, key } that a row has as data-kind and
// data-key; `row` may add the id of the one row that is meant, as several may have one name, and
// `stay` leaves the page where it is. Who shows things listens to it. A detail of null selects
// nothing.
globalThis.selection = (() => {
  const rows = [...document.querySelectorAll("[data-kind]")];
  let found = [];
  let related = [];

  const within = (row) => (row.dataset.within ?? "").split(" ").filter(Boolean);
  const dispatch = (detail) =>
    document.dispatchEvent(new CustomEvent("gpuprof:select", { detail }));
  const select = (row) =>
    dispatch({ kind: row.dataset.kind, key: row.dataset.key, row: row.id });

  function named({ kind, key, row }) {
    const same = (each) => each.dataset.kind === kind && each.dataset.key === key;
    const one = row && document.getElementById(row);
    return one?.dataset.kind ? [one] : rows.filter(same);
  }

  // The rows that these lie in, those that lie in them, and those of the same name in other tables.
  function relatives(chosen) {
    const ids = new Set(chosen.map((row) => row.id));
    const around = new Set(chosen.flatMap(within));
    const names = new Set(chosen.map((row) => `${row.dataset.kind} ${row.dataset.key}`));
    const tables = new Set(chosen.map((row) => row.closest("table")));
    return rows.filter((row) =>
      !ids.has(row.id) &&
      (around.has(row.id) ||
        within(row).some((id) => ids.has(id)) ||
        (names.has(`${row.dataset.kind} ${row.dataset.key}`) && !tables.has(row.closest("table")))));
  }

  function isInView(row) {
    const box = row.getBoundingClientRect();
    // The heads of a table stay at the top of the screen.
    return box.height > 0 && box.top >= 40 && box.bottom <= innerHeight;
  }

  function show(row) {
    for (let fold = row.parentElement.closest("details"); fold; fold = fold.parentElement.closest("details")) {
      fold.open = true;
    }
    tables.reveal(row);
    if (isInView(row)) return;
    const block = row.offsetHeight < innerHeight / 2 ? "center" : "start";
    row.scrollIntoView({ behavior: "instant", block });
  }

  function address(detail) {
    if (found.length === 1) return `#${found[0].id}`;
    return detail ? `#${detail.kind}=${encodeURIComponent(detail.key)}` : location.pathname + location.search;
  }

  function apply(detail) {
    for (const row of [...found, ...related]) {
      row.classList.remove("selected", "related");
      row.removeAttribute("aria-current");
    }
    found = detail ? named(detail) : [];
    related = relatives(found);
    for (const row of found) {
      row.classList.add("selected");
      row.setAttribute("aria-current", "true");
    }
    for (const row of related) row.classList.add("related");
    if (found.length && !detail.stay) show(found[0]);
    try {
      history.replaceState(null, "", address(detail));
    } catch {
      // A page inside of a notebook has no address of its own.
    }
  }

  function fromAddress() {
    const text = decodeURIComponent(location.hash.slice(1));
    const row = text && document.getElementById(text);
    if (row?.dataset.kind) return select(row);
    const [, kind, key] = /^(kernel|operator|module|range|step)=(.*)$/s.exec(text) ?? [];
    if (kind) dispatch({ kind, key });
  }

  document.addEventListener("gpuprof:select", (event) => apply(event.detail));
  document.addEventListener("click", (event) => {
    const row = event.target.closest("[data-kind]");
    if (!row || row.tagName === "DETAILS" || event.target.closest("a, button, .figures")) return;
    if (getSelection().isCollapsed) select(row);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || !found.length) return;
    if (!event.target.closest("input, dialog")) dispatch(null);
  });
  addEventListener("hashchange", fromAddress);
  // Once all who listen are there.
  document.addEventListener("DOMContentLoaded", fromAddress);

  return {
    select,
    // The ids of what is selected, and of what belongs to it.
    ids: () => found.map((row) => row.id),
    relatedIds: () => related.map((row) => row.id),
  };
})();
