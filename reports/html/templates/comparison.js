"use strict";

// What a moved point says in its tooltip stands in a card that is there at once, by mouse or keys.
(() => {
  const card = document.getElementById("card");
  if (!card) return;

  function show(words, x, y) {
    card.replaceChildren(...words.map((line, index) => {
      const part = document.createElement("p");
      part.textContent = line;
      if (!index) part.className = "title";
      return part;
    }));
    card.hidden = false;
    const box = card.getBoundingClientRect();
    const left = x + 18 + box.width < innerWidth ? x + 18 : x - 18 - box.width;
    card.style.left = `${Math.max(8, left)}px`;
    card.style.top = `${Math.max(8, Math.min(y - 20, innerHeight - box.height - 8))}px`;
  }

  for (const move of document.querySelectorAll("a.move")) {
    const title = move.querySelector("title");
    const words = title.textContent.split("\n");
    move.setAttribute("aria-label", words.join("; "));
    title.remove();
    move.addEventListener("mousemove", (event) => show(words, event.clientX, event.clientY));
    move.addEventListener("focus", () => {
      const box = move.getBoundingClientRect();
      show(words, box.right, box.top);
    });
    for (const left of ["mouseleave", "blur", "click"]) {
      move.addEventListener(left, () => { card.hidden = true; });
    }
  }

  // A row shows its points while it is pointed at, or has the focus.
  for (const row of document.querySelectorAll("#kernel-table tbody tr")) {
    const mark = (chosen) => {
      for (const move of document.querySelectorAll(`a.move[href="#${row.id}"]`)) {
        move.classList.toggle("chosen", chosen);
      }
    };
    for (const begin of ["mouseenter", "focusin"]) row.addEventListener(begin, () => mark(true));
    for (const end of ["mouseleave", "focusout"]) row.addEventListener(end, () => mark(false));
  }

  // A point leads to its row, which opens.
  function openTarget() {
    const row = location.hash && document.getElementById(location.hash.slice(1));
    const details = row?.querySelector?.("td details");
    if (!details) return;
    details.open = true;
    tables.reveal(row);
    row.scrollIntoView({ block: "center" });
  }
  addEventListener("hashchange", openTarget);
  openTarget();
})();
