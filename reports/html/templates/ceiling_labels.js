"use strict";

// The labels of a roofline's ceilings, at the right end of each flat one and along each slanted one,
// and the ridge of each roof as a number.
globalThis.ceilingLabels = (() => {
  const narrow = matchMedia("(max-width: 1000px)");
  const phone = matchMedia("screen and (max-width: 620px)");
  const print = matchMedia("print");
  const isNarrow = () => narrow.matches || print.matches;

  // Annotations for `lines` on a plot area of so many pixels with `ranges` of exponents; `unit` makes
  // words of a place on the axis below.
  function labels(lines, { colour, area, ranges, unit }) {
    const perDecade = {
      x: area.width / (ranges.x[1] - ranges.x[0]),
      y: area.height / (ranges.y[1] - ranges.y[0]),
    };
    const font = (line) => ({ size: 12, color: colour(line.is_roof ? "ink" : "soft") });
    const flat = flatLabels(
      lines.filter((line) => line.kind === "compute"), perDecade, ranges, font, colour);
    const slanted = [];
    for (const line of lines) {
      if (line.kind !== "memory" || !line.name || (phone.matches && !line.is_roof)) continue;
      const label = slantedLabel(line, { lines, perDecade, ranges, font: font(line), flat, slanted });
      if (label) slanted.push(label);
    }
    return [...slanted, ...flat, ...ridges(lines, perDecade, ranges, colour, unit)];
  }

  // Plotly reads a little HTML in labels: what comes from the data is escaped.
  const escape = (part) =>
    part.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function text(line, separator) {
    const measured = line.source === "measured" ? ", measured" : "";
    return `${escape(line.name)}${separator}${line.rate}${measured}`;
  }

  function slantedLabel(line, { lines, perDecade, ranges, font, flat, slanted }) {
    const angle = Math.atan2(perDecade.y, perDecade.x);
    const offset = Math.log10(line.y0 / line.x0);
    // Low down the line runs among the memory-bound points; near its upper end it is free.
    const start = Math.max(ranges.x[0], ranges.y[0] - offset);
    const end = Math.min(ranges.x[1], ranges.y[1] - offset, Math.log10(line.x1));
    if (start >= end) return null;
    const isCloseBelow = lines.some((other) => {
      const up = (Math.log10(other.y0 / other.x0) - offset) * perDecade.y * Math.cos(angle);
      return other.kind === "memory" && up > 0 && up < 24;
    });
    const side = line.is_roof && !isCloseBelow ? 1 : -1;
    const at = (share) => start + share * (end - start);
    const halfOf = (words) => (words.length * 6.5) / 2;
    const half = halfOf(text(line, " "));
    // Two levels of memory of nearly one rate have lines too close for labels side by side.
    const isApart = (share) => slanted.every((other) => {
      const right = (other.x - at(share)) * perDecade.x;
      const up = (other.y - at(share) - offset) * perDecade.y;
      const along = Math.abs(right * Math.cos(angle) + up * Math.sin(angle));
      const across = Math.abs(up * Math.cos(angle) - right * Math.sin(angle));
      return across > 18 || along > half + halfOf(other.text) + 8;
    });
    // On a phone the flat ceilings' labels are in the plot too.
    const isFree = (share) => !phone.matches || flat.every((other) =>
      [-1, -0.5, 0, 0.5, 1].every((part) => {
        const right = (ranges.x[1] - at(share)) * perDecade.x - half * part * Math.cos(angle);
        const above = (at(share) + offset - other.y) * perDecade.y + half * part * Math.sin(angle);
        return right > 6 * other.text.length + 16 || Math.abs(above - other.yshift - 8) > 20;
      }));
    const places = [0.68, 0.8, 0.5, 0.35, 0.2];
    const x = at(places.find((share) => isFree(share) && isApart(share)) ?? places.find(isFree) ?? 0.68);
    return {
      x, y: x + offset, xref: "x", yref: "y", text: text(line, " "), font, showarrow: false,
      textangle: (-angle * 180) / Math.PI,
      xshift: -side * 10 * Math.sin(angle), yshift: side * 10 * Math.cos(angle),
    };
  }

  // Moves heights apart to at least `gap`, each group around its own centre and below `limit`.
  // `heights` runs from high to low; so does the result.
  function spread(heights, gap, limit) {
    const half = ({ count }) => ((count - 1) / 2) * gap;
    const centre = (group) => Math.min(group.sum / group.count, limit - half(group));
    const bottom = (group) => centre(group) - half(group);
    const top = (group) => centre(group) + half(group);
    const groups = [];
    for (const height of heights) {
      let group = { sum: height, count: 1 };
      while (groups.length && bottom(groups.at(-1)) - top(group) < gap) {
        const above = groups.pop();
        group = { sum: above.sum + group.sum, count: above.count + group.count };
      }
      groups.push(group);
    }
    return groups.flatMap((group) =>
      Array.from({ length: group.count }, (_, index) => top(group) - index * gap));
  }

  // In the right margin, with a thin leader to each line's end; on a phone above the line's end.
  function flatLabels(lines, perDecade, ranges, font, colour) {
    const height = (line) => (Math.log10(line.y0) - ranges.y[0]) * perDecade.y;
    const top = (ranges.y[1] - ranges.y[0]) * perDecade.y;
    const inside = lines.filter((line) => height(line) >= 0 && height(line) <= top);
    const sorted = inside.sort((a, b) => height(b) - height(a));
    if (phone.matches) return labelsInside(sorted, height, font, colour);
    const heights = spread(sorted.map(height), isNarrow() ? 31 : 16, top);
    return sorted.map((line, index) => ({
      x: 1, xref: "paper", xanchor: "left", y: Math.log10(line.y0), yref: "y",
      text: text(line, isNarrow() ? "<br>" : " "), align: "left", font: font(line),
      ax: 24, ay: height(line) - heights[index], borderpad: 2,
      arrowhead: 0, arrowwidth: 1, arrowcolor: font(line).color,
    }));
  }

  // Leaves out the labels that would stand away from their line.
  function labelsInside(sorted, height, font, colour) {
    let lowest = Infinity;
    return sorted.flatMap((line) => {
      if (!line.is_roof && height(line) > lowest - 15) return [];
      lowest = Math.min(height(line), lowest - 15);
      return [{
        x: 1, xref: "paper", xanchor: "right", y: Math.log10(line.y0), yref: "y",
        yanchor: "bottom", yshift: lowest - height(line), text: text(line, " "),
        font: { ...font(line), size: 11 }, showarrow: false, borderpad: 0,
        bgcolor: `color-mix(in srgb, ${colour("page")} 70%, transparent)`,
      }];
    });
  }

  // Where a slanted roof of the same source meets a flat one in use: the number stands below the
  // corner, where there is room; that of the slowest level first. A link meets its own latency alone.
  function ridges(lines, perDecade, ranges, colour, unit) {
    const placed = [];
    const width = (words) => (7 * words.length) / perDecade.x;
    const isFree = (x, y, words) =>
      x >= ranges.x[0] && x + width(words) <= ranges.x[1] && y >= ranges.y[0] && y <= ranges.y[1] &&
      placed.every((other) =>
        x > other.x + width(other.text) || other.x > x + width(words) ||
        Math.abs(other.y - y) * perDecade.y > 16);
    for (const line of lines) {
      if (line.kind !== "compute" || !line.used || !line.is_roof || line.clock_mhz) continue;
      const slopes = lines.filter((other) =>
        other.kind === "memory" && other.name && other.source === line.source &&
        (!other.name.endsWith(" latency") || line.name.startsWith(`${other.name.slice(0, -8)},`)));
      slopes.sort((a, b) => a.y0 / a.x0 - b.y0 / b.x0);
      for (const { name, x0, y0 } of slopes) {
        const ridge = line.y0 / (y0 / x0);
        const [x, y] = [Math.log10(ridge), Math.log10(line.y0)];
        // Of several levels each says which it is.
        const words = `${slopes.length > 1 ? `${escape(name)} ` : ""}${unit(ridge)}`;
        if (!isFree(x, y, words)) continue;
        placed.push({
          x, y, xref: "x", yref: "y", xanchor: "left", yanchor: "top", showarrow: false, xshift: 4,
          yshift: -2, text: words, font: { size: 12, color: colour("soft") }, name: "ridge",
          bgcolor: `color-mix(in srgb, ${colour("page")} 70%, transparent)`, borderpad: 1,
        });
      }
    }
    return placed;
  }

  return { all: labels, isNarrow, phone };
})();
