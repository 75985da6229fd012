// The charts of `kiln report`, drawn from the data block; the tables are there without it.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement, tip = document.getElementById("tip");
  const at = id => document.getElementById(id);

  // --- words and elements

  const bytes = n => {
    if (n < 1024) return n + " B";
    let unit = -1;
    do { n /= 1024; ++unit; } while (n >= 1023.95 && unit < 3);
    return n.toFixed(n < 99.95 ? 1 : 0) + " " + ["KiB", "MiB", "GiB", "TiB"][unit];
  };
  const time = ms => ms < 0.995 ? ms.toFixed(2) + " ms" : ms < 9.95 ? ms.toFixed(1) + " ms"
    : ms < 999.5 ? ms.toFixed(0) + " ms" : ms < 59950 ? (ms / 1000).toFixed(1) + " s"
    : Math.floor(Math.round(ms / 1000) / 60) + "m" + Math.round(ms / 1000) % 60 + "s";
  const counted = (n, one, many) => n + " " + (n === 1 ? one : many || one + "s");
  const percent = share => (100 * share).toFixed(1) + " %";

  const svg = (name, attributes, ...children) => {
    const out = document.createElementNS("http:" + "//www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes || {})) out.setAttribute(key, value);
    out.append(...children);
    return out;
  };
  const element = (name, attributes, ...children) => {
    const out = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) out.setAttribute(key, value);
    out.append(...children);
    return out;
  };
  const swatch = (kind, opacity, text) => element("span", { class: "key" },
    svg("svg", { viewBox: "0 0 14 14", "aria-hidden": "true" },
      svg("rect", { width: 14, height: 14, rx: 2, class: kind, "fill-opacity": opacity })), text);

  // The same template has the same colour everywhere: by its bytes, then by its place in the prewarm.
  const rank = new Map();
  const colour = name => {
    if (!rank.has(name)) rank.set(name, rank.size);
    return "c" + Math.min(rank.get(name), 7);
  };
  const sums = new Map();
  for (const g of data.groups) sums.set(g.template, (sums.get(g.template) || 0) + g.stored_bytes);
  for (const [name] of [...sums].sort((a, b) => b[1] - a[1])) colour(name);

  // --- the tip, for a mouse and for a keyboard

  const show = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(x + 14, root.clientWidth - box.width - 8));
    const top = y + 18 + box.height > root.clientHeight ? y - box.height - 12 : y + 18;
    tip.style.left = left + "px";
    tip.style.top = Math.max(8, top) + "px";
  };
  const hide = () => { tip.hidden = true; };
  const explained = (node, text) => {
    node.addEventListener("mousemove", event => show(text, event.clientX, event.clientY));
    node.addEventListener("mouseleave", hide);
    node.addEventListener("focus", () => {
      const box = node.getBoundingClientRect();
      show(text, box.left + Math.min(box.width, 40), box.top + Math.min(box.height, 30));
    });
    node.addEventListener("blur", hide);
    return node;
  };
  document.addEventListener("keydown", event => { if (event.key === "Escape") hide(); });

  /// Of many marks one is a stop of the tab key; the arrows go to its neighbours.
  const oneStop = (box, label) => {
    const marks = () => [...box.querySelectorAll(".hit")];
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", label + "; arrow keys move between marks");
    marks().forEach((mark, i) => mark.setAttribute("tabindex", i ? -1 : 0));
    box.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step && event.key !== "Home" && event.key !== "End") return;
      const all = marks(), here = all.indexOf(document.activeElement);
      if (here < 0) return;
      event.preventDefault();
      const next = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1
        : Math.max(0, Math.min(all.length - 1, here + step));
      all[here].setAttribute("tabindex", -1);
      all[next].setAttribute("tabindex", 0);
      all[next].focus();
    });
  };

  // --- the treemap

  /// Squarified (Bruls, Huizing, van Wijk): rows along the shorter side while that makes them squarer.
  const squarify = (items, x, y, w, h, place) => {
    items = items.filter(item => item.size > 0).sort((a, b) => b.size - a.size);
    let left = items.reduce((sum, item) => sum + item.size, 0);
    while (items.length && w > 0.5 && h > 0.5) {
      const side = Math.min(w, h), scale = w * h / left;
      const worst = (sum, least, most) => Math.max(side * side * most / (sum * sum), sum * sum / (side * side * least));
      let row = 1, sum = items[0].size * scale;
      const most = sum;
      while (row < items.length) {
        const next = items[row].size * scale;
        if (worst(sum + next, next, most) > worst(sum, items[row - 1].size * scale, most)) break;
        sum += next;
        ++row;
      }
      const depth = sum / side;
      let along = 0;
      for (const item of items.splice(0, row)) {
        const length = item.size * scale / depth;
        if (w >= h) place(item, x, y + along, depth, length);
        else place(item, x + along, y, length, depth);
        along += length;
        left -= item.size;
      }
      if (w >= h) { x += depth; w -= depth; } else { y += depth; h -= depth; }
    }
  };
  const fitted = (text, width, perLetter) => {
    const most = Math.floor(width / perLetter);
    return text.length <= most ? text : most < 4 ? "" : text.slice(0, most - 1) + "\u2026";
  };

  const whole = [...sums].map(([name, size]) => ({ name, size, groups: data.groups.filter(g => g.template === name) }));
  const total = whole.reduce((sum, t) => sum + t.size, 0);

  const drawTreemap = chosen => {
    const box = at("treemap");
    if (!total) return;
    const width = Math.max(300, box.clientWidth || 300), height = Math.round(Math.max(300, Math.min(460, width * 0.42)));
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
    const tile = (kind, x, y, w, h, lines, text, open) => {
      const mark = svg("g", { class: "hit" + (open ? " opens" : ""), role: open ? "button" : "img", "aria-label": text.replace(/\n/g, ", ") },
        svg("rect", { class: "tile " + kind, x, y, width: Math.max(0, w), height: Math.max(0, h), rx: 3 }));
      lines.forEach((line, i) => {
        // The first is cut where it must be; of the others it is all, the part before the comma, or nothing.
        const shown = i ? [line, line.split(",")[0]].find(part => part.length * 7.2 <= w - 12) : fitted(line, w - 12, 7.9);
        if (shown && h > 18 * (i + 1) + 2)
          mark.append(svg("text", { class: "label" + (i ? "" : " strong"), x: x + 7, y: y + 17 + 16 * i }, shown));
      });
      explained(mark, text);
      if (open) {
        mark.addEventListener("click", open);
        mark.addEventListener("keydown", event => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          open();
        });
      }
      picture.append(mark);
    };
    const about = (name, size, entries) => `${name}\n${bytes(size)} stored, ${percent(size / total)} of all\n${counted(entries, "entry", "entries")}`;
    const tools = element("div", { class: "tools" });
    if (chosen) {
      const back = element("button", { type: "button" }, "\u2190 All templates");
      back.addEventListener("click", () => { drawTreemap(null); box.querySelector(".hit").focus(); });
      tools.append(back, element("strong", {}, chosen.name), bytes(chosen.size));
      squarify(chosen.groups.map(g => ({ g, size: g.stored_bytes })), 0, 0, width, height, ({ g }, x, y, w, h) => {
        tile(colour(g.template), x, y, w, h, [g.arch, bytes(g.stored_bytes), counted(g.entries, "entry", "entries")],
          about(g.template + " " + g.arch, g.stored_bytes, g.entries));
        const known = g.largest.reduce((sum, e) => sum + e[1], 0), rest = g.stored_bytes - known;
        const inside = g.largest.map(e => ({ e, size: e[1] }));
        if (rest > 0) inside.push({ size: rest });
        if (w < 60 || h < 90 || inside.length < 2) return;
        squarify(inside, x + 5, y + 58, w - 10, h - 63, ({ e, size }, ix, iy, iw, ih) => e
          ? tile(colour(g.template), ix, iy, iw, ih, [...e[0].split(" ").slice(0, 2), bytes(size)], `${g.template} ${e[0]} ${g.arch}\n${bytes(size)} stored, image ${bytes(e[2])}`)
          : tile("c7", ix, iy, iw, ih, [`${g.entries - g.largest.length} smaller`, bytes(size)],
            about(`${g.entries - g.largest.length} smaller ones of ${g.template} ${g.arch}`, size, g.entries - g.largest.length)));
      });
    } else {
      squarify(whole.slice(), 0, 0, width, height, (t, x, y, w, h) => {
        const entries = t.groups.reduce((sum, g) => sum + g.entries, 0), kind = colour(t.name);
        const open = t.groups[0].largest.length ? () => { drawTreemap(t); at("treemap").querySelector("button").focus(); } : null;
        tile(kind, x, y, w, h, [t.name, bytes(t.size) + ", " + counted(entries, "entry", "entries")], about(t.name, t.size, entries), open);
        if (w < 50 || h < 70) return;
        squarify(t.groups.map(g => ({ g, size: g.stored_bytes })), x + 5, y + 42, w - 10, h - 47, ({ g }, ix, iy, iw, ih) =>
          tile(kind, ix, iy, iw, ih, [g.arch, bytes(g.stored_bytes)], about(g.template + " " + g.arch, g.stored_bytes, g.entries), open));
      });
    }
    const group = element("div", {}, picture);
    box.replaceChildren(...(chosen ? [tools, group] : [group]));
    oneStop(group, "Treemap of bytes");
    hide();
    drawTreemap.chosen = chosen;
  };

  // --- scales

  /// Round numbers between the two, about `count` of them.
  const ticks = (from, to, count) => {
    const raw = (to - from) / count, power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= raw);
    const out = [];
    for (let v = Math.ceil(from / step) * step; v <= to + step * 1e-9; v += step) out.push(v);
    return out;
  };
  const text = (x, y, words, anchor, kind) => svg("text", { x, y, class: "axis " + (kind || ""), "text-anchor": anchor || "start" }, words);

  // --- the time line

  const phases = [["Front end", 4, 1], ["NVVM", 5, 0.7], ["ptxas", 6, 0.45]];
  const around = 0.2;  // opacity of what is no phase: preparing, waiting, publishing

  let zoom = 1;
  const drawTimeline = () => {
    const run = data.prewarm, box = at("timeline");
    if (!run || !run.bars.length) return;
    const narrow = Math.max(300, box.clientWidth || 300), width = narrow * zoom;
    const left = 58, right = 14, laneHeight = Math.max(4, Math.min(30, 640 / run.lanes.length)), curve = 64, top = 22;
    const height = top + curve + 18 + laneHeight * run.lanes.length + 24;
    const span = Math.max(1e-3, run.last_ms - run.first_ms);
    const x = ms => left + (ms - run.first_ms) / span * (width - left - right);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height },
      svg("defs", {}, svg("pattern", { id: "hatch", class: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("line", { x1: 0, x2: 0, y1: 0, y2: 6 }))));
    const lanesTop = top + curve + 18, bottom = lanesTop + laneHeight * run.lanes.length;
    for (const tick of ticks(run.first_ms, run.last_ms, Math.max(2, Math.floor(width / 130)))) {
      picture.append(svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: top, y2: bottom }),
        text(Math.min(x(tick), width - right - 14), bottom + 17, tick ? time(tick) : "0", "middle"));
    }
    // How many lanes were in the compiler.
    picture.append(text(0, 12, "Lanes in the compiler, of " + run.jobs));
    if (run.compiling.length) {
      const y = n => top + curve - Math.min(1, n / run.jobs) * curve, part = (width - left - right) / run.compiling.length;
      let path = `M${left},${y(0)}`;
      run.compiling.forEach((n, i) => { path += `L${(left + i * part).toFixed(1)},${y(n).toFixed(1)}L${(left + (i + 1) * part).toFixed(1)},${y(n).toFixed(1)}`; });
      picture.append(svg("path", { class: "area", d: path + `L${width - right},${y(0)}Z` }),
        text(left - 6, top + 9, String(run.jobs), "end"), text(left - 6, top + curve, "0", "end"),
        svg("line", { class: "base", x1: left, x2: width - right, y1: top + curve, y2: top + curve }));
    }
    const place = new Map(run.lanes.map((lane, i) => [lane.lane, lanesTop + i * laneHeight]));
    const inner = laneHeight - (laneHeight > 8 ? 3 : 1), named = Math.ceil(13 / laneHeight);
    for (const lane of run.lanes) {
      const y = place.get(lane.lane);
      picture.append(svg("rect", { class: "lane", x: left, y: y + 1, width: width - left - right, height: inner, rx: 2 }));
      if (lane.lane % named === 0) picture.append(text(left - 6, y + laneHeight / 2 + 3, "lane " + (lane.lane + 1), "end"));
    }
    for (const bar of run.bars) {
      const [lane, start, end, compile, , , , template, tasks, params, outcome] = bar;
      const y = place.get(lane) + 1, h = inner, name = run.templates[template], kind = colour(name);
      const from = x(start), wide = Math.max(1, x(end) - from);
      const title = tasks === 1 ? `${name} ${params}` : `${counted(tasks, "short task")} of ${name}`;
      const words = `${title}\n${tasks === 1 ? outcome + ", " : ""}${time(end - start)} from ${time(start)} on, lane ${lane + 1}` +
        (compile > 0 ? `\nin the compiler ${time(compile)}: ` + phases.map(([label, i]) => `${label} ${time(bar[i])}`).join(", ") : "");
      const mark = svg("g", { class: "hit", role: "img", "aria-label": words.replace(/\n/g, ", ") });
      const part = (begin, length, opacity) => mark.append(svg("rect",
        { class: kind, x: x(begin), y, width: Math.max(0.3, x(begin + length) - x(begin)), height: h, "fill-opacity": opacity }));
      if (tasks > 1) {
        mark.append(svg("rect", { class: kind, x: from, y, width: wide, height: h, "fill-opacity": 0.7 }),
          svg("rect", { x: from, y, width: wide, height: h, fill: "url(#hatch)" }));
      } else if (wide > 2.5 && compile > 0) {
        part(start, end - start, around);
        let begin = Math.max(start, end - compile);
        for (const [, i, opacity] of phases) {
          const length = Math.min(bar[i], end - begin);
          if (length > 0) part(begin, length, opacity);
          begin += Math.max(0, length);
        }
      } else {
        mark.append(svg("rect", { class: kind, x: from, y, width: wide, height: h, "fill-opacity": compile > 0 ? 0.8 : 0.45 }));
      }
      const frame = svg("rect", { class: wide > 5 ? "tile" : "tile thin", x: from, y, width: wide, height: h, fill: "none" });
      mark.append(frame);
      if (outcome === "failed") mark.append(svg("rect", { class: "failed", x: from, y, width: Math.max(3, wide), height: h }));
      picture.append(explained(mark, words));
    }
    const tools = element("div", { class: "tools" });
    for (const [label, factor] of [["Zoom in", 2], ["Zoom out", 0.5]]) {
      const button = element("button", { type: "button" }, label);
      button.disabled = factor > 1 ? zoom >= 16 : zoom <= 1;
      button.addEventListener("click", () => {
        const shown = box.querySelector(".wide"), middle = (shown.scrollLeft + shown.clientWidth / 2) / shown.scrollWidth;
        zoom *= factor;
        drawTimeline();
        const now = box.querySelector(".wide");
        now.scrollLeft = middle * now.scrollWidth - now.clientWidth / 2;
        box.querySelectorAll("button")[factor > 1 && zoom < 16 || zoom <= 1 ? 0 : 1].focus();
      });
      tools.append(button);
    }
    run.templates.slice(0, 8).forEach(name => tools.append(swatch(colour(name), 1, name)));
    tools.append(element("span", { class: "quiet" }, "Shades:"));
    for (const [label, , opacity] of phases) tools.append(swatch("neutral", opacity, label));
    tools.append(swatch("neutral", around, "outside the compiler"));
    if (run.bars.some(bar => bar[8] > 1)) tools.append(element("span", { class: "quiet" }, "Hatched: short tasks, drawn together"));
    const wideBox = element("div", { class: "wide" }, picture);
    box.replaceChildren(tools, wideBox);
    if (zoom > 1) picture.style.width = width + "px";
    oneStop(wideBox, "Timeline of the last prewarm");
    hide();
  };

  // --- compile times

  const drawHistograms = () => {
    const histogram = data.histogram, box = at("histograms");
    if (!histogram) return;
    const width = Math.max(300, box.clientWidth || 300), left = width < 520 ? 84 : 110, right = 12, row = 76, gap = 20;
    const edges = histogram.edges, low = Math.log10(edges[0]), high = Math.log10(edges[edges.length - 1]);
    const x = ms => left + (Math.log10(ms) - low) / (high - low) * (width - left - right);
    const rows = [["Whole", "whole"], ["Front end", "front_end"], ["NVVM", "nvvm"], ["ptxas", "ptxas"]];
    const height = rows.length * (row + gap) + 26;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height });
    const marks = [];
    for (let power = Math.floor(low); power <= Math.ceil(high); ++power)
      for (const m of high - low > 2.5 ? [1] : width < 520 ? [1, 3] : [1, 2, 5]) marks.push(m * Math.pow(10, power));
    for (const mark of marks.filter(m => Math.log10(m) >= low && Math.log10(m) <= high)) {
      picture.append(svg("line", { class: "grid", x1: x(mark), x2: x(mark), y1: gap - 6, y2: height - 22 }),
        text(x(mark), height - 6, mark >= 1000 ? mark / 1000 + " s" : mark + " ms", "middle"));
    }
    rows.forEach(([label, name], i) => {
      const { bins, median_ms: median } = histogram[name], most = Math.max(1, ...bins);
      const base = (i + 1) * (row + gap) - 4;
      picture.append(text(0, base - row / 2 + 2, label, "start", "name"), text(0, base - row / 2 + 19, median ? time(median) : "none"),
        text(left - 6, base - row + 9, String(most), "end"),
        svg("line", { class: "base", x1: left, x2: width - right, y1: base, y2: base }));
      bins.forEach((n, j) => {
        if (!n) return;
        const from = x(edges[j]), h = Math.max(1.5, n / most * row);
        const words = `${label}: ${counted(n, "kernel")} between ${time(edges[j])} and ${time(edges[j + 1])}`;
        picture.append(explained(svg("g", { class: "hit", role: "img", "aria-label": words },
          svg("rect", { class: "series tile", x: from, y: base - h, width: x(edges[j + 1]) - from, height: h })), words));
      });
      if (median) picture.append(svg("line", { class: "marker", x1: x(median), x2: x(median), y1: base - row - 4, y2: base }));
    });
    const group = element("div", {}, picture);
    box.replaceChildren(group);
    oneStop(group, "Histograms of compile time by phase");
  };

  // --- tables that sort

  const isNumber = value => /^-?[0-9.]+$/.test(value);
  const sortable = table => {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, i) => {
      const button = element("button", { type: "button" }, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const number = head.classList.contains("number");
        // Numbers begin with the largest, words with the first.
        const before = head.getAttribute("aria-sort"), up = before ? before === "descending" : !number;
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = row => row.cells[i].dataset.v ?? row.cells[i].textContent;
        const rows = [...body.rows].sort((a, b) => {
          const one = value(a), two = value(b), x = parseFloat(one), y = parseFloat(two);
          return isNaN(x) || isNaN(y) || !isNumber(one) ? one.localeCompare(two, "en", { numeric: true }) : x - y;
        });
        body.append(...(up ? rows : rows.reverse()));
      });
    });
  };

  // --- the theme: as the system says, unless #theme=dark or the button says otherwise

  const themes = ["system", "light", "dark"];
  const setTheme = theme => {
    if (theme === "system") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", theme);
    at("theme").textContent = "Theme: " + theme;
    at("theme").dataset.theme = theme;
  };
  at("theme").hidden = false;
  at("theme").addEventListener("click", () =>
    setTheme(themes[(themes.indexOf(at("theme").dataset.theme) + 1) % themes.length]));
  setTheme((/theme=(light|dark)/.exec(location.hash) || [])[1] || "system");

  const draw = () => {
    drawTreemap(drawTreemap.chosen || null);
    drawTimeline();
    drawHistograms();
  };
  document.querySelectorAll("table").forEach(sortable);
  draw();
  if (total) at("treemap").parentNode.querySelector("details").open = false;
  let drawn = root.clientWidth, waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (root.clientWidth === drawn) return;
      drawn = root.clientWidth;
      draw();
    }, 150);
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = true; }));
})();
