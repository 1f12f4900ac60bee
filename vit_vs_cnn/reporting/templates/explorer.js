"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const FUSIONS = ["mean", "max", "min"];
  const ABOUT = {
    layer: "Attention weights of one layer: the patches that one patch takes information from.", rollout: data.rollout };
  const SIDE = 512;
  const MARGIN = 28; // for the numbers beside the heads of all layers

  /** An element with properties, attributes (names with a dash, and role) and children. */
  const make = (tag, properties = {}, children = []) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.includes("-") || name === "role") element.setAttribute(name, value);
      else element[name] = value;
    }
    element.append(...children);
    return element;
  };
  const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const percent = (share) => `${(100 * share).toFixed(0)} %`;
  const counted = (index) => index + 1; // layers and heads, for a reader
  const number = (value) => (value === 0 ? "0" : Math.abs(value) >= 0.001 ? value.toFixed(4) : value.toExponential(2));
  const scored = ([deletion, chance, faster]) =>
    `Deletion ${deletion.toFixed(2)}, random ${chance.toFixed(2)} (${faster >= 0 ? "+" : "−"}${percent(Math.abs(faster))}). ` +
    "Lower is better: the probability of the class falls sooner if these regions are removed first.";
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

  // ---------------------------------------------------------------- weights

  /** The attention of one network on one image: rows are queries; see pack_weights on the other side. */
  class Weights {
    constructor(about, bytes) {
      this.tokens = about.extra + about.grid[0] * about.grid[1];
      this.heads = about.heads;
      const heads = about.heads.reduce((sum, count) => sum + count, 0);
      this.scales = new DataView(bytes.buffer, bytes.byteOffset, 2 * heads * this.tokens);
      this.levels = bytes.subarray(2 * heads * this.tokens);
      this.first = about.heads.map((_, layer) => about.heads.slice(0, layer).reduce((sum, count) => sum + count, 0));
      this.fused = new Map();
    }
    /** Adds share times the row of a query to a vector. */
    addRow(vector, layer, head, query, share) {
      const row = (this.first[layer] + head) * this.tokens + query;
      const scale = (share * this.scales.getUint16(2 * row, true)) / data.scales / data.levels;
      const start = row * this.tokens;
      for (let key = 0; key < this.tokens; key++) vector[key] += scale * this.levels[start + key];
    }
    /** q^T A of one head. */
    head(layer, head, start) {
      const vector = new Float64Array(this.tokens);
      start.forEach((share, query) => share && this.addRow(vector, layer, head, query, share));
      return vector;
    }
    /** The heads of a layer as one matrix, its rows summing to one; a row of zeros becomes the identity's. */
    fuse(layer, fusion) {
      const name = `${layer} ${fusion}`;
      if (this.fused.has(name)) return this.fused.get(name);
      const n = this.tokens;
      const matrix = new Float64Array(n * n).fill(fusion === "min" ? Infinity : 0);
      for (let query = 0; query < n; query++) {
        const into = matrix.subarray(query * n, (query + 1) * n);
        for (let head = 0; head < this.heads[layer]; head++) {
          const row = new Float64Array(n);
          this.addRow(row, layer, head, query, 1);
          for (let key = 0; key < n; key++) {
            if (fusion === "mean") into[key] += row[key];
            else into[key] = fusion === "max" ? Math.max(into[key], row[key]) : Math.min(into[key], row[key]);
          }
        }
        const sum = into.reduce((total, value) => total + value, 0);
        if (sum === 0) into[query] = 1;
        else for (let key = 0; key < n; key++) into[key] /= sum;
      }
      this.fused.set(name, matrix);
      return matrix;
    }
    /** q^T F of one layer. */
    layer(layer, fusion, start) {
      const matrix = this.fuse(layer, fusion);
      const vector = new Float64Array(this.tokens);
      start.forEach((share, query) => {
        if (!share) return;
        for (let key = 0; key < this.tokens; key++) vector[key] += share * matrix[query * this.tokens + key];
      });
      return vector;
    }
    /** q^T M_L ... M_1 with M = (I + F) / 2: from the last layer down to the first. */
    rollout(fusion, start) {
      let vector = Float64Array.from(start);
      for (let layer = this.heads.length - 1; layer >= 0; layer--) {
        const below = this.layer(layer, fusion, vector);
        vector = vector.map((share, token) => (share + below[token]) / 2);
      }
      return vector;
    }
  }

  const inflate = async (bytes) => {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  const opened = new Map(); // the last ones used: unpacked they are large
  const weightsOf = (model, image) => {
    const name = `w${model}-${image}`;
    const known = opened.get(name) ?? inflate(bytesOf($(name).textContent)).then(
      (bytes) => new Weights(data.models[model].attention, bytes));
    opened.delete(name);
    opened.set(name, known);
    if (opened.size > 6) opened.delete(opened.keys().next().value);
    return known;
  };

  // ---------------------------------------------------------------- state

  const state = { image: 0, place: [0.5, 0.5], pointed: false, target: null, held: false, reads: false, active: 0 };
  const pictures = data.images.map((image) => {
    const picture = new Image();
    picture.onload = () => draw();
    picture.src = image.src;
    return picture;
  });
  const tables = Object.fromEntries(Object.entries(data.colours).map(([name, text]) => [name, bytesOf(text)]));
  for (const name of Object.keys(tables)) $("colours").append(make("option", { value: name, textContent: name }));
  const cellOf = (place, [rows, cols]) => [
    clamp(Math.floor(place[0] * rows), 0, rows - 1),
    clamp(Math.floor(place[1] * cols), 0, cols - 1),
  ];
  const placeOf = ([row, col], [rows, cols]) => [(row + 0.5) / rows, (col + 0.5) / cols];
  const said = ([row, col]) => `(${row}, ${col})`;

  // ---------------------------------------------------------------- a panel

  class Panel {
    constructor(index) {
      this.index = index;
      this.views = [];
      this.layer = null; // the last one, until the reader chooses another
      this.head = "mean";
      this.fusion = "mean";
      this.values = null;
      this.build();
      this.choose(Math.min(index, data.models.length - 1));
    }
    build() {
      this.models = make("select", { "aria-label": "Network", onchange: () => this.choose(+this.models.value) });
      data.models.forEach((model, i) => this.models.append(make("option", { value: i, textContent: model.name })));
      this.methods = make("select", { "aria-label": "Method", onchange: () => this.show(this.methods.value) });
      this.meaning = make("p", { className: "small" });
      this.says = make("p", { className: "says" });
      this.main = make("canvas", { className: "main", tabIndex: 0, role: "img", "aria-label": "Map over the image" });
      this.bar = make("canvas", { width: 256, height: 1, "aria-hidden": "true" });
      [this.low, this.high] = [make("span"), make("span")];
      this.readout = make("p", { className: "readout", "aria-live": "polite" });
      const step = (by) => () => { this.moveLayer(by); };
      this.count = make("span", { className: "count" });
      this.layers = make("div", { className: "row" }, [
        make("button", { type: "button", textContent: "−", "aria-label": "Layer down", onclick: step(-1) }), this.count,
        make("button", { type: "button", textContent: "+", "aria-label": "Layer up", onclick: step(1) }),
      ]);
      this.heads = make("div", { className: "row heads", role: "group", "aria-label": "Heads" });
      this.all = make("canvas", { className: "all", role: "img", "aria-label": "Every head of every layer" });
      this.allNote = make("p", { className: "small" });
      this.numbers = make("div", { className: "numbers", tabIndex: 0 });
      this.details = make("details", { ontoggle: () => this.tabulate() }, [
        make("summary", { textContent: "Numbers" }), this.numbers]);
      const bar = make("div", { className: "bar" }, [this.low, this.bar, this.high]);
      this.root = make("section", { className: "panel", "data-panel": this.index }, [
        make("div", { className: "row" }, [this.models, this.methods]), this.meaning, this.says, this.main, bar, this.readout,
        this.layers, this.heads, this.all, this.allNote, this.details]);
      this.root.addEventListener("pointerdown", () => { state.active = this.index; });
      this.root.addEventListener("focusin", () => { state.active = this.index; });
      const point = (event, pressed) => {
        const box = this.main.getBoundingClientRect();
        const place = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
        if (place.some((share) => share < 0 || share >= 1)) return;
        state.active = this.index;
        pointAt(placeOf(cellOf(place, this.grid()), this.grid()), pressed);
      };
      this.main.addEventListener("pointermove", (event) => point(event, false));
      this.main.addEventListener("pointerdown", (event) => point(event, true));
      this.main.addEventListener("pointerleave", () => { state.target = null; draw(); });
      this.all.addEventListener("click", (event) => this.pickHead(event));
      $("panels").append(this.root);
    }
    get about() { return data.models[this.model]; }
    grid() {
      if (this.about.attention) return this.about.attention.grid;
      const other = data.models.find((model) => model.attention);
      return other ? other.attention.grid : this.map().grid;
    }
    map() { return this.about.maps.find((map) => map.method === this.view); }
    choose(model) {
      this.model = model;
      this.models.value = model;
      const attends = this.about.attention;
      const specific = this.about.maps.filter((map) => map.specific);
      this.views = [ // maps for a class first: they can be compared between networks
        ...specific.map((map) => [map.method, map.method]),
        ...(attends ? [["layer", "one layer"], ["rollout", "rollout (class-agnostic)"]] : []),
        ...this.about.maps.filter((map) => !map.specific).map((map) => [map.method, `${map.method} (class-agnostic)`]),
      ];
      this.methods.replaceChildren(...this.views.map(([value, textContent]) => make("option", { value, textContent })));
      if (attends) this.layer = clamp(this.layer ?? attends.heads.length - 1, 0, attends.heads.length - 1);
      this.show(this.views.some(([view]) => view === this.view) ? this.view : this.views[0][0]);
    }
    show(view) {
      this.view = view;
      this.methods.value = view;
      const inside = view === "layer";
      this.layers.style.display = inside ? "" : "none";
      this.heads.style.display = inside || view === "rollout" ? "" : "none";
      this.all.style.display = this.allNote.style.display = inside || view === "rollout" ? "" : "none";
      this.buttons();
      draw();
    }
    choices() {
      const heads = this.view === "layer" ? this.about.attention.heads[this.layer] : 0;
      return [...FUSIONS, ...Array(heads).keys()];
    }
    get chosen() { return this.view === "rollout" ? this.fusion : this.head; }
    pick(choice) {
      if (this.view === "rollout") this.fusion = choice;
      else this.head = choice;
      this.buttons();
      draw();
    }
    buttons() {
      if (!this.about.attention) return;
      if (!this.choices().includes(this.chosen)) this.head = "mean";
      this.heads.replaceChildren(
        make("span", { className: "small", textContent: this.view === "rollout" ? "Heads fused by" : "Head" }),
        ...this.choices().map((choice) => make("button", {
          type: "button", textContent: typeof choice === "number" ? counted(choice) : choice, "aria-pressed": String(choice === this.chosen),
          onclick: () => this.pick(choice),
        })));
      this.count.textContent = `Layer ${counted(this.layer)} of ${this.about.attention.heads.length}`;
    }
    moveLayer(by) {
      if (this.view !== "layer") return;
      this.layer = clamp(this.layer + by, 0, this.about.attention.heads.length - 1);
      this.buttons();
      draw();
    }
    moveHead(by) {
      if (!this.about.attention || !["layer", "rollout"].includes(this.view)) return;
      const choices = this.choices();
      this.pick(choices[(choices.indexOf(this.chosen) + by + choices.length) % choices.length]);
    }
    /** How much of each token the map starts from. */
    start() {
      const { query, extra, grid } = this.about.attention;
      if (state.reads) return query[Math.min(state.image, query.length - 1)];
      const [row, col] = cellOf(state.place, grid);
      const start = new Float64Array(extra + grid[0] * grid[1]);
      start[extra + row * grid[1] + col] = 1;
      return start;
    }
    /** Values over the grid, their range, and what goes to the tokens that are no patches. */
    async compute() {
      const map = this.map();
      if (map) {
        const size = map.grid[0] * map.grid[1];
        const at = state.image;
        map.levels ??= bytesOf(map.bytes);
        const [low, high] = [map.low[at], map.high[at]];
        const levels = map.levels.subarray(at * size, (at + 1) * size);
        return { grid: map.grid, values: Float64Array.from(levels, (l) => low + ((high - low) * l) / 255), low, high };
      }
      const { extra, grid } = this.about.attention;
      const weights = await weightsOf(this.model, state.image);
      const start = this.start();
      const all = this.view === "rollout" ? weights.rollout(this.fusion, start)
        : typeof this.head === "number" ? weights.head(this.layer, this.head, start)
        : weights.layer(this.layer, this.head, start);
      const values = all.subarray(extra);
      return { grid, values, low: Math.min(...values), high: Math.max(...values), extra: all.subarray(0, extra), weights, start };
    }
    async draw() {
      const asked = (this.asked = {});
      const found = await this.compute();
      if (asked !== this.asked) return; // something newer is on its way
      this.values = found;
      this.paint(found);
      this.tell(found);
      if (found.weights) this.paintAll(found);
      this.tabulate();
    }
    paint({ grid, values, low, high }) {
      const [rows, cols] = data.images[state.image].size;
      const context = this.main.getContext("2d");
      [this.main.width, this.main.height] = [SIDE, Math.round((SIDE * rows) / cols)];
      const [width, height] = [this.main.width, this.main.height];
      const opacity = +$("opacity").value;
      context.imageSmoothingEnabled = Math.max(rows, cols) > 128;
      context.filter = "grayscale(0.85)";
      context.drawImage(pictures[state.image], 0, 0, width, height);
      context.filter = "none";
      context.imageSmoothingEnabled = $("drawn").value === "smooth";
      const drawn = context.imageSmoothingEnabled ? [enlarged(values, grid), FINE] : [values, grid];
      context.drawImage(heatOf(...drawn, low, high, opacity), 0, 0, width, height);
      const outline = (place, dashed) => {
        const cells = this.grid();
        const [row, col] = cellOf(place, cells);
        const box = [(col * width) / cells[1], (row * height) / cells[0], width / cells[1], height / cells[0]];
        context.setLineDash(dashed ? [6, 5] : []);
        for (const [colour, line] of [["#000", 6], ["#fff", 2.5]]) {
          context.strokeStyle = colour;
          context.lineWidth = line;
          context.strokeRect(...box);
        }
        context.setLineDash([]);
      };
      if (this.map() ? state.pointed : !state.reads) outline(state.place, false);
      if (state.target) outline(state.target, true);
      this.low.textContent = number(low);
      this.high.textContent = number(high);
      const strip = this.bar.getContext("2d");
      const ramp = strip.createImageData(256, 1);
      paintInto(ramp.data, Float64Array.from({ length: 256 }, (_, i) => i), 0, 255);
      strip.putImageData(ramp, 0, 0);
    }
    /** Every head of every layer from the same start, each from its own smallest to its own largest value. */
    paintAll({ grid, weights, start }) {
      const { heads, extra } = this.about.attention;
      const [rows, cols] = grid;
      const columns = Math.max(...heads);
      const scale = Math.max(1, Math.round(640 / (columns * (cols + 1))));
      const [wide, high] = [scale * cols + 4, scale * rows + 4];
      const context = this.all.getContext("2d");
      [this.all.width, this.all.height] = [MARGIN + columns * wide, MARGIN + heads.length * high];
      [context.fillStyle, context.textAlign, context.textBaseline] = [getComputedStyle(this.root).color, "center", "middle"];
      context.font = "20px system-ui, sans-serif";
      for (let head = 0; head < columns; head++) context.fillText(counted(head), MARGIN + (head + 0.5) * wide, MARGIN / 2);
      for (let layer = 0; layer < heads.length; layer++) context.fillText(counted(layer), MARGIN / 2, MARGIN + (layer + 0.5) * high);
      context.translate(MARGIN, MARGIN);
      context.imageSmoothingEnabled = false;
      heads.forEach((count, layer) => {
        for (let head = 0; head < count; head++) {
          const values = weights.head(layer, head, start).subarray(extra);
          const heat = heatOf(values, grid, Math.min(...values), Math.max(...values));
          context.drawImage(heat, head * wide + 2, layer * high + 2, wide - 4, high - 4);
        }
      });
      if (this.view !== "layer") return;
      const one = typeof this.head === "number";
      [context.strokeStyle, context.lineWidth] = ["#ff7f0e", 4];
      context.strokeRect((one ? this.head * wide : 0) + 1, this.layer * high + 1, (one ? 1 : columns) * wide - 2, high - 2);
    }
    pickHead(event) {
      const { heads } = this.about.attention;
      const box = this.all.getBoundingClientRect();
      const along = (share, length, count) => Math.floor((count * (share * length - MARGIN)) / (length - MARGIN));
      const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      const layer = clamp(along(y, this.all.height, heads.length), 0, heads.length - 1);
      const head = along(x, this.all.width, Math.max(...heads));
      this.layer = layer;
      this.head = clamp(head, 0, heads[layer] - 1);
      this.show("layer");
    }
    tell({ grid, values, extra, low, high }) {
      const says = this.about.says[state.image];
      const mark = says.right === null ? "" : says.right ? " ✓ right" : " ✗ wrong";
      const map = this.map();
      this.says.replaceChildren("Predicted: ", make("b", { textContent: says.class }), ` ${percent(says.share)}`,
        make("span", { className: says.right ? "right" : "wrong-text", textContent: mark }));
      this.meaning.textContent = !map ? ABOUT[this.view]
        : map.specific ? `${map.about} Class: ${map.classes[state.image]}.` : map.about;
      const place = state.target ?? (map || state.reads ? (map ? state.place : null) : null);
      const lines = [];
      if (map) {
        lines.push(scored(map.score[state.image]));
        const [row, col] = cellOf(place, grid);
        if (state.pointed) lines.push(`At ${said(cellOf(place, this.grid()))}: ${number(values[row * grid[1] + col])}.`);
      } else {
        const from = state.reads ? "What the classifier reads" : `Patch ${said(cellOf(state.place, grid))}`;
        const verb = this.view === "rollout" ? "consists of" : "attends to";
        const order = [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, 4);
        const spots = order.map((i) => `${said([Math.floor(i / grid[1]), i % grid[1]])} ${number(values[i])}`);
        lines.push(`${from} ${verb} ${spots.join(", ")}; uniform weights would be ${number(1 / (extra.length + values.length))}.`);
        if (extra.length) {
          lines.push(`To the ${extra.length > 1 ? `${extra.length} tokens` : "token"} before the patches: ` +
            `${[...extra].map(number).join(", ")}.`);
        }
        const scores = this.view === "rollout" && this.fusion === "mean" && this.about.scores.rollout;
        if (scores) lines.push(`As a map of what the classifier reads: ${scored(scores[state.image])}`);
        if (place) {
          const [row, col] = cellOf(place, grid);
          lines.push(`To ${said([row, col])}: ${number(values[row * grid[1] + col])}.`);
        }
        this.allNote.textContent = `Every head (across) of every layer (down), each in its own colours; ` +
          `click one to see it. Counted from 1; rows and columns of patches from 0.`;
      }
      this.readout.replaceChildren(...lines.flatMap((line, i) => (i ? [make("br"), line] : [line])));
    }
    tabulate() {
      if (!this.details.open || !this.values) return;
      const { grid: [rows, cols], values } = this.values;
      const line = (row) => make("tr", {}, [make("th", { textContent: row, scope: "row" }),
        ...Array.from({ length: cols }, (_, col) => {
          const value = values[row * cols + col];
          return make("td", { textContent: number(value), "data-value": value });
        })]);
      const head = make("tr", {}, [make("td"), ...Array.from({ length: cols }, (_, col) =>
        make("th", { textContent: col, scope: "col" }))]);
      this.numbers.replaceChildren(make("table", {}, [make("thead", {}, [head]),
        make("tbody", {}, Array.from({ length: rows }, (_, row) => line(row)))]));
    }
  }

  // ---------------------------------------------------------------- colours

  /** Colours; where the map is not alone the more opaque the greater, so that the image stays to be seen. */
  const paintInto = (pixels, values, low, high, opacity = 1) => {
    const table = tables[$("colours").value];
    const scale = high > low ? 255 / (high - low) : 0;
    values.forEach((value, i) => {
      const level = clamp(Math.round((value - low) * scale), 0, 255);
      pixels[4 * i] = table[3 * level];
      pixels[4 * i + 1] = table[3 * level + 1];
      pixels[4 * i + 2] = table[3 * level + 2];
      pixels[4 * i + 3] = opacity === 1 ? 255 : Math.round(255 * opacity * (0.3 + (0.7 * level) / 255));
    });
  };
  const FINE = [128, 128];
  /** Values on a fine grid, by bilinear interpolation. */
  const enlarged = (values, [rows, cols]) => Float64Array.from({ length: FINE[0] * FINE[1] }, (_, i) => {
    const at = (cell, fine, count) => clamp(((cell + 0.5) * count) / fine - 0.5, 0, count - 1);
    const [y, x] = [at(Math.floor(i / FINE[1]), FINE[0], rows), at(i % FINE[1], FINE[1], cols)];
    const [top, left] = [Math.floor(y), Math.floor(x)];
    const row = (down) => {
      const start = Math.min(down, rows - 1) * cols;
      return values[start + left] * (1 - x + left) + values[start + Math.min(left + 1, cols - 1)] * (x - left);
    };
    return row(top) * (1 - y + top) + row(top + 1) * (y - top);
  });
  const scratch = make("canvas");
  const heatOf = (values, [rows, cols], low, high, opacity) => {
    [scratch.width, scratch.height] = [cols, rows];
    const context = scratch.getContext("2d");
    const image = context.createImageData(cols, rows);
    paintInto(image.data, values, low, high, opacity);
    context.putImageData(image, 0, 0);
    return scratch;
  };

  // ---------------------------------------------------------------- the whole

  const pointAt = (place, pressed) => {
    state.pointed = true;
    if (state.held) state.target = place;
    else if (pressed || !state.reads) {
      state.place = place;
      state.reads = state.reads && !pressed;
    } else state.target = place;
    draw();
  };
  const chooseImage = (index) => {
    state.image = index;
    strip[state.image].scrollIntoView({ block: "nearest", inline: "nearest" });
    draw();
  };
  /** The image so many places further, of those that are shown. */
  const turn = (by) => {
    const there = matching();
    const at = there.indexOf(state.image);
    if (there.length) chooseImage(there[(at + by + there.length) % there.length]);
  };
  const FILTERS = {
    all: () => true,
    wrong: (says) => says.some((one) => one.right === false),
    right: (says) => says.every((one) => one.right === true),
    apart: (says) => new Set(says.map((one) => one.class)).size > 1,
  };
  const matching = () => [...data.images.keys()].filter((index) =>
    FILTERS[$("show").value](data.models.map((model) => model.says[index])) &&
    ($("class").value === "" || data.images[index].label === $("class").value.slice(1)));
  const filter = () => {
    const there = matching();
    strip.forEach((button, index) => { button.hidden = !there.includes(index); });
    $("shown").textContent = there.length ? `${there.length} of ${data.images.length} images`
      : "No image matches. The one below was chosen before.";
    if (there.length && !there.includes(state.image)) chooseImage(there[0]);
  };
  const toggle = (name) => {
    state[name] = !state[name];
    if (!state[name]) state.target = null;
    draw();
  };
  const strip = data.images.map((image, index) => {
    const wrong = data.models.some((model) => model.says[index].right === false);
    const label = `Image ${index}: ${image.label ?? image.name}${wrong ? ", wrong somewhere" : ""}`;
    const button = make("button", { type: "button", className: wrong ? "wrong" : "", title: label, "aria-label": label,
      onclick: () => chooseImage(index) }, [make("img", { src: image.src, alt: label })]);
    if (Math.max(...image.size) <= 128) button.firstChild.style.imageRendering = "pixelated";
    $("strip").append(button);
    return button;
  });
  let waiting = false;
  const draw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const image = data.images[state.image];
      strip.forEach((button, index) => button.setAttribute("aria-pressed", String(index === state.image)));
      $("what").textContent = `${image.name}: ${image.label ?? "class not known"}`;
      if ($("clear").src !== image.src) [$("clear").src, $("clear").alt] = [image.src, image.label ?? image.name];
      $("read").setAttribute("aria-pressed", String(state.reads));
      $("hold").setAttribute("aria-pressed", String(state.held));
      const page = document.documentElement.dataset;
      const round = (state.round = {});
      page.drawn = "";
      Promise.all(panels.map((panel) => panel.draw())).then(() => { if (state.round === round) page.drawn = "yes"; });
    });
  };
  const panels = [];
  for (let index = 0; index < Math.min(2, data.models.length); index++) panels.push(new Panel(index));
  const labels = [...new Set(data.images.map((image) => image.label).filter((label) => label !== null))].sort();
  for (const label of labels) $("class").append(make("option", { value: `=${label}`, textContent: label }));
  if (data.models.length < 2) $("show").querySelector("[value=apart]").remove();
  if (!labels.length) ["wrong", "right"].forEach((name) => $("show").querySelector(`[value=${name}]`).remove());
  $("show").onchange = $("class").onchange = filter;
  filter();
  $("read").onclick = () => toggle("reads");
  $("hold").onclick = () => toggle("held");
  $("opacity").onchange = $("colours").onchange = $("drawn").onchange = () => draw();
  if (!data.models.some((model) => model.attention)) $("read").hidden = true;

  const move = (down, right) => {
    const grid = panels[state.active].grid();
    const from = state.held ? state.target ?? state.place : state.place;
    const [row, col] = cellOf(from, grid);
    state.reads = state.reads && state.held;
    state.pointed = true;
    const place = placeOf([clamp(row + down, 0, grid[0] - 1), clamp(col + right, 0, grid[1] - 1)], grid);
    state[state.held ? "target" : "place"] = place;
    draw();
  };
  const next = (select, change) => change(select.options[(select.selectedIndex + 1) % select.options.length].value);
  const keys = {
    ArrowUp: () => move(-1, 0), ArrowDown: () => move(1, 0), ArrowLeft: () => move(0, -1), ArrowRight: () => move(0, 1),
    "[": () => panels[state.active].moveLayer(-1), "]": () => panels[state.active].moveLayer(1),
    ";": () => panels[state.active].moveHead(-1), "'": () => panels[state.active].moveHead(1),
    ",": () => turn(-1), ".": () => turn(1),
    m: () => next(panels[state.active].methods, (view) => panels[state.active].show(view)),
    n: () => next(panels[state.active].models, (model) => panels[state.active].choose(+model)),
    c: () => toggle("reads"), " ": () => toggle("held"),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("select, summary, input")) return;
    if (event.key === " " && event.target.closest("button")) return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
})();
