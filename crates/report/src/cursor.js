// One moment, shown in every time line: moved by the slider, by a pointer over a chart, or from hit to hit.
"use strict";
(() => {
  const bar = document.querySelector(".cursor");
  if (!bar) return;
  const data = JSON.parse(document.getElementById("series").textContent);
  const slider = document.getElementById("moment");
  const values = document.getElementById("values");
  const lines = [...document.querySelectorAll(".timeline svg")].map((svg) => {
    const line = document.createElementNS(svg.namespaceURI, "line");
    line.setAttribute("y1", 0);
    line.setAttribute("y2", svg.viewBox.baseVal.height);
    line.setAttribute("stroke", "var(--link)");
    line.setAttribute("visibility", "hidden");
    svg.append(line);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * data.width;
      show(((x - data.left) / data.axis) * data.seconds);
    });
    return line;
  });

  // The last point at or before a moment is of the interval that ended there; the next one is of the present.
  function valueAt(points, at) {
    let low = 0, high = points.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < at) low = middle + 1; else high = middle;
    }
    return low < points.length ? points[low][1] : null;
  }

  let moment = 0;
  function show(at) {
    moment = Math.min(Math.max(at, 0), data.seconds);
    const x = data.left + (data.seconds > 0 ? moment / data.seconds : 0) * data.axis;
    for (const line of lines) {
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
      line.setAttribute("visibility", "visible");
    }
    slider.value = Math.round((moment / (data.seconds || 1)) * 1000);
    const words = data.charts.map((chart) => {
      const found = chart.lines
        .map((line) => [line.name, valueAt(line.points, moment)])
        .filter((pair) => pair[1] !== null)
        .map((pair) => (chart.lines.length > 1 ? pair[0] + " " : "") + pair[1]);
      return found.length ? chart.title + ": " + found.join(", ") : "";
    });
    const digits = Math.min(Math.max(2 - Math.floor(Math.log10(data.seconds || 1)), 0), 9);
    const text = moment.toFixed(digits) + " s. " + words.filter(Boolean).join("; ");
    values.textContent = text;
    slider.setAttribute("aria-valuetext", text);
  }

  slider.addEventListener("input", () => show((slider.value / 1000) * data.seconds));
  const step = 1e-9;
  document.getElementById("next").addEventListener("click", () => {
    const hit = data.hits.find((at) => at > moment + step);
    if (hit !== undefined) show(hit);
  });
  document.getElementById("previous").addEventListener("click", () => {
    const hit = data.hits.findLast((at) => at < moment - step);
    if (hit !== undefined) show(hit);
  });
  for (const id of ["next", "previous"]) document.getElementById(id).hidden = data.hits.length === 0;
  bar.hidden = false;
})();
