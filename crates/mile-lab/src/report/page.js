"use strict";
(() => {
  const root = document.documentElement, tip = document.getElementById("tip"), svgNS = "http://www.w3.org/2000/svg";
  const hidden = new Set();

  // The horizontal axis of all figures, and the theme.
  const axes = [...document.querySelectorAll("nav [data-axis]")];
  const choose = (axis) => {
    root.dataset.axis = axis;
    axes.forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.axis === axis)));
  };
  axes.forEach((b) => b.addEventListener("click", () => choose(b.dataset.axis)));
  choose("round");
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // Tooltip with the values at the pointer.
  const parsed = new WeakMap();
  const values = (line) => {
    if (!parsed.has(line)) parsed.set(line, line.dataset.values.split(";").map((v) => v.split(" ").map(Number)));
    return parsed.get(line);
  };
  const shown = (v, digits = 4) => {
    const a = Math.abs(v);
    return a === 0 ? "0" : a >= 1e-3 && a < 1e5 ? String(Number(v.toPrecision(digits))) : v.toExponential(digits - 2);
  };
  const clear = () => {
    tip.hidden = true;
    document.querySelectorAll(".overlay").forEach((o) => o.remove());
  };
  const element = (name, attributes) => {
    const e = document.createElementNS(svgNS, name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    return e;
  };
  const point = (event) => {
    clear();
    const svg = event.target.closest && event.target.closest(".chart svg");
    if (!svg) return;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    for (const panel of svg.querySelectorAll(".panel")) {
      const [left, top, w, h] = panel.dataset.box.split(" ").map(Number);
      if (at.x < left - 4 || at.x > left + w + 4 || at.y < top || at.y > top + h) continue;
      const [x0, x1] = panel.dataset.x.split(" ").map(Number), [y0, y1] = panel.dataset.y.split(" ").map(Number);
      const log = panel.dataset.log === "1", digits = Number(panel.dataset.digits), x = x0 + ((at.x - left) / w) * (x1 - x0);
      const place = (y) => top + h * (1 - (log ? Math.log(y / y0) / Math.log(y1 / y0) : (y - y0) / (y1 - y0)));
      const found = [];
      for (const line of panel.querySelectorAll("[data-values]")) {
        if (line.classList.contains("off")) continue;
        const near = values(line).reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
        found.push({ line, near, py: place(near[1]), px: left + (w * (near[0] - x0)) / (x1 - x0) });
      }
      if (!found.length) return;
      // Curves may have points at different x: the tooltip shows x where it differs.
      const nearest = found.reduce((a, b) => (Math.abs(b.near[0] - x) < Math.abs(a.near[0] - x) ? b : a)).near[0];
      found.sort((a, b) => b.near[1] - a.near[1]);
      const overlay = element("g", { class: "overlay", "pointer-events": "none" });
      const px = left + (w * (nearest - x0)) / (x1 - x0);
      overlay.append(element("path", { class: "cross", d: `M${px} ${top}v${h}`, fill: "none" }));
      tip.replaceChildren();
      const head = document.createElement("b");
      head.textContent = `${shown(nearest)} ${panel.dataset.unit}`;
      tip.append(head);
      for (const { line, near, px, py } of found) {
        const colour = getComputedStyle(line).stroke;
        if (py >= top && py <= top + h) overlay.append(element("circle", { cx: px, cy: py, r: 4, fill: colour }));
        const row = document.createElement("div"), key = document.createElement("i");
        key.style.background = colour;
        const band = near.length > 2 ? ` (${shown(near[2], digits)} to ${shown(near[3], digits)})` : "";
        const where = near[0] === nearest ? "" : ` at ${shown(near[0])}`;
        row.append(key, `${line.dataset.label}: ${shown(near[1], digits)}${band}${where}`);
        tip.append(row);
      }
      svg.append(overlay);
      tip.hidden = false;
      const box = tip.getBoundingClientRect(), room = 14;
      const fits = event.clientX + room + box.width < innerWidth;
      tip.style.left = `${Math.max(4, fits ? event.clientX + room : event.clientX - room - box.width)}px`;
      tip.style.top = `${Math.max(4, Math.min(event.clientY + room, innerHeight - box.height - 4))}px`;
      return;
    }
  };
  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  document.addEventListener("scroll", clear, { passive: true });

  // A click on a legend entry hides or shows its curves.
  const hide = () => {
    document.querySelectorAll(".run").forEach((run, k) => {
      run.querySelectorAll("[data-series]").forEach((e) => e.classList.toggle("off", hidden.has(`${k}:${e.dataset.series}`)));
    });
  };
  document.addEventListener("click", (event) => {
    const entry = event.target.closest && event.target.closest(".legend");
    if (!entry) return;
    const run = [...document.querySelectorAll(".run")].indexOf(entry.closest(".run"));
    const key = `${run}:${entry.dataset.series}`;
    if (!hidden.delete(key)) hidden.add(key);
    hide();
  });

  // A live page polls the server.
  if (root.hasAttribute("data-live")) {
    const status = document.getElementById("live"), main = document.getElementById("main");
    let version = "", failures = 0;
    const ask = async () => {
      let state = null;
      try {
        const answer = await fetch(`state?version=${version}`, { cache: "no-store" });
        state = await answer.json();
        failures = 0;
      } catch {
        failures += 1;
      }
      if (state && state.version !== version) {
        version = state.version;
        const open = [...main.querySelectorAll("details")].map((d) => d.open);
        main.innerHTML = state.html;
        main.querySelectorAll("details").forEach((d, k) => (d.open = open[k] || false));
        hide();
      }
      if (state) status.textContent = state.status;
      const lasting = root.hasAttribute("data-lasting");
      if (lasting) {
        status.classList.toggle("over", !state);
        main.classList.toggle("old", !state);
        if (!state) status.textContent = `no answer for ${failures} s; what is below is old`;
      } else if ((state && state.over) || failures > 5) {
        status.classList.add("over");
        if (failures > 5) status.textContent = "the run's process has ended";
        return;
      }
      setTimeout(ask, 1000);
    };
    ask();
  }
})();
