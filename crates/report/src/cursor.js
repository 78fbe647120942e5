// One moment, shown in every time line: moved by the slider, by a pointer over a chart, or from hit to hit. And one stretch of
// time, shown as wide as the axis in all of them: chosen by dragging over a chart or by buttons.
"use strict";
(() => {
  const bar = document.querySelector(".cursor");
  if (!bar) return;
  const data = JSON.parse(document.getElementById("series").textContent);
  const slider = document.getElementById("moment");
  const values = document.getElementById("values");
  // What is seen of the run, in seconds.
  let from = 0, to = data.seconds;
  const width = () => (to - from) || 1;
  const place = (at) => data.left + ((at - from) / width()) * data.axis;
  const within = (at) => Math.min(Math.max(at, from), to);
  const svgs = [...document.querySelectorAll(".timeline svg")];

  function drawn(svg, kind, attributes) {
    const element = document.createElementNS(svg.namespaceURI, kind);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    svg.append(element);
    return element;
  }

  const lines = svgs.map((svg) => {
    const height = svg.viewBox.baseVal.height;
    const line = drawn(svg, "line", { y1: 0, y2: height, stroke: "var(--link)", visibility: "hidden" });
    const chosen = drawn(svg, "rect", { y: 0, height, fill: "var(--link)", opacity: 0.2, visibility: "hidden" });
    const moment_at = (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * data.width;
      return within(from + ((x - data.left) / data.axis) * width());
    };
    let began = null;
    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button !== 0) return;
      began = moment_at(event);
      svg.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    svg.addEventListener("pointermove", (event) => {
      const at = moment_at(event);
      show(at);
      if (began === null) return;
      const [left, right] = [place(Math.min(began, at)), place(Math.max(began, at))];
      chosen.setAttribute("x", left);
      chosen.setAttribute("width", right - left);
      chosen.setAttribute("visibility", "visible");
    });
    for (const end of ["pointerup", "pointercancel"]) {
      svg.addEventListener(end, (event) => {
        if (began === null) return;
        const at = moment_at(event), first = began;
        began = null;
        chosen.setAttribute("visibility", "hidden");
        // Less than that is a click.
        if (end === "pointerup" && Math.abs(place(at) - place(first)) > 5) zoom(Math.min(first, at), Math.max(first, at));
      });
    }
    svg.addEventListener("dblclick", () => zoom(0, data.seconds));
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

  const digits = (span) => Math.min(Math.max(2 - Math.floor(Math.log10(span || 1)), 0), 9);
  let moment = 0;
  function show(at) {
    moment = Math.min(Math.max(at, 0), data.seconds);
    if (moment < from || moment > to) {
      const start = Math.min(Math.max(moment - width() / 2, 0), data.seconds - width());
      look(start, start + width());
    }
    const x = data.seconds > 0 ? place(moment) : data.left;
    for (const line of lines) {
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
      line.setAttribute("visibility", "visible");
    }
    slider.value = Math.round(((moment - from) / width()) * 1000);
    const words = data.charts.map((chart) => {
      const found = chart.lines
        .map((line) => [line.name, valueAt(line.points, moment)])
        .filter((pair) => pair[1] !== null)
        .map((pair) => (chart.lines.length > 1 ? pair[0] + " " : "") + pair[1]);
      return found.length ? chart.title + ": " + found.join(", ") : "";
    });
    const text = moment.toFixed(digits(width())) + " s. " + words.filter(Boolean).join("; ");
    values.textContent = text;
    slider.setAttribute("aria-valuetext", text);
  }

  // A tenth of a pixel of the whole run, or a nanosecond, is the least that is looked at.
  const least = Math.max(data.seconds / data.axis / 10, 1e-9);
  function zoom(first, last) {
    const span = Math.min(Math.max(last - first, least), data.seconds);
    const start = Math.min(Math.max((first + last - span) / 2, 0), data.seconds - span);
    look(start, start + span);
    show(within(moment));
  }

  // What lies over the axis of time is put into a frame that cuts it off and can be drawn wider.
  const frames = [];
  function frame_all() {
    for (const svg of svgs) {
      for (const group of svg.querySelectorAll(":scope > .over-time")) {
        const frame = document.createElementNS(svg.namespaceURI, "svg");
        const height = svg.viewBox.baseVal.height;
        for (const [name, value] of Object.entries(
          { class: "frame", x: data.left, y: 0, width: data.axis, height, preserveAspectRatio: "none" }
        )) frame.setAttribute(name, value);
        group.replaceWith(frame);
        frame.append(group);
        frames.push(frame);
      }
    }
  }

  function look(first, last) {
    if (frames.length === 0) frame_all();
    [from, to] = [first, last];
    const share = data.seconds > 0 ? width() / data.seconds : 1;
    const left = data.left + (data.seconds > 0 ? from / data.seconds : 0) * data.axis;
    for (const frame of frames) {
      frame.setAttribute("viewBox", `${left} 0 ${data.axis * share} ${frame.getAttribute("height")}`);
      for (const text of frame.querySelectorAll("text")) {
        const x = text.getAttribute("x");
        text.setAttribute("transform", `translate(${x} 0) scale(${share} 1) translate(${-x} 0)`);
      }
    }
    for (const svg of svgs) draw_times(svg);
    farther.disabled = whole.disabled = share > 0.9999;
  }

  function draw_times(svg) {
    const times = svg.querySelector(".times");
    if (!times) return;
    const [tick, name] = [times.querySelector("polyline"), times.querySelector("text")];
    const [top, bottom] = tick.getAttribute("points").split(" ").map((point) => point.split(",")[1]);
    const power = 10 ** Math.floor(Math.log10(width() / 10));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= width() / 10 - 1e-15);
    const decimals = Math.min(Math.max(-Math.floor(Math.log10(step) + 1e-9), 0), 12);
    const all = [];
    for (let number = Math.ceil(from / step - 1e-9); number * step <= to + step * 1e-9; number++) {
      const x = place(number * step);
      const [line, text] = [tick.cloneNode(), name.cloneNode()];
      line.setAttribute("points", `${x},${top} ${x},${bottom}`);
      text.setAttribute("x", x);
      text.setAttribute("text-anchor", x > data.left + data.axis - 20 ? "end" : "middle");
      text.textContent = (number * step).toFixed(decimals);
      all.push(line, text);
    }
    if (all.length === 0) return;
    all[all.length - 1].textContent += " s";
    times.replaceChildren(...all);
  }

  slider.addEventListener("input", () => show(from + (slider.value / 1000) * width()));
  const step = 1e-9;
  document.getElementById("next").addEventListener("click", () => {
    const hit = data.hits.find((at) => at > moment + step);
    if (hit !== undefined) show(hit);
  });
  document.getElementById("previous").addEventListener("click", () => {
    const hit = data.hits.findLast((at) => at < moment - step);
    if (hit !== undefined) show(hit);
  });
  const [closer, farther, whole] = ["closer", "farther", "whole"].map((id) => document.getElementById(id));
  const around = (factor) => {
    const span = width() * factor;
    zoom(moment - span / 2, moment + span / 2);
  };
  closer.addEventListener("click", () => around(0.5));
  farther.addEventListener("click", () => around(2));
  whole.addEventListener("click", () => zoom(0, data.seconds));
  farther.disabled = whole.disabled = true;
  for (const id of ["next", "previous"]) document.getElementById(id).hidden = data.hits.length === 0;
  bar.hidden = false;
})();
