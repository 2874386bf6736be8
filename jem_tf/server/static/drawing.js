// Pictures as numbers and back: the drawing area, files, and small canvases.

const SIDE = 256; // pixels of the drawing area, at least
const FILL = 0.9; // share of the frame that a centred drawing takes

/** Draws `values` of an image of `shape`, between `low` and `high`, pixel by pixel. */
export function paint(canvas, values, [height, width, channels], [low, high]) {
  canvas.width = width;
  canvas.height = height;
  const picture = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) {
      const value = values[i * channels + (channels === 1 ? 0 : c)];
      picture.data[4 * i + c] = (255 * (value - low)) / (high - low);
    }
    picture.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(picture, 0, 0);
  return canvas;
}

export function picture(values, facts, label) {
  const canvas = paint(document.createElement("canvas"), values, facts.input_shape, facts.range);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  return canvas;
}

/** Where a person draws; calls `changed(values)` with an array in the model's range. */
export class Drawing {
  constructor(canvas, changed, failed) {
    this.canvas = canvas;
    this.changed = changed;
    this.failed = failed;
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.spare = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    this.centred = true; // if asked for, and what is there was drawn here
    this.ink = "#ffffff";
    this.fit = true;
    this.cursor = [0, 0];
    this.listen();
  }

  /** Begin anew, for a model with other inputs. */
  shape(shape, range) {
    const [height, width] = shape;
    const times = Math.ceil(SIDE / Math.max(height, width));
    Object.assign(this, { size: shape, range, times });
    for (const { canvas } of [this.context, this.spare]) {
      canvas.width = width * times;
      canvas.height = height * times;
    }
    this.brush = Math.max(times, this.canvas.width / 14);
    if (shape[2] === 1) this.ink = "#ffffff";
    this.cursor = [this.canvas.width / 2, this.canvas.height / 2];
    this.clear();
  }

  clear() {
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.centred = true;
  }

  listen() {
    const { canvas } = this;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [
        ((event.clientX - box.left) * canvas.width) / box.width,
        ((event.clientY - box.top) * canvas.height) / box.height,
      ];
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.line(place(event), place(event));
      this.last = place(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.last) return;
      this.line(this.last, place(event));
      this.last = place(event);
    });
    for (const over of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(over, () => { this.last = null; });
    }
    canvas.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!way) return;
      event.preventDefault();
      const [x, y] = this.cursor;
      const step = this.brush / 2;
      const limit = (v, most) => Math.min(Math.max(v, 0), most);
      const next = [limit(x + way[0] * step, canvas.width), limit(y + way[1] * step, canvas.height)];
      if (event.shiftKey) this.line(this.cursor, next);
      this.cursor = next;
      const mark = this.canvas.parentElement.querySelector(".pen");
      mark.style.left = `${(100 * next[0]) / canvas.width}%`;
      mark.style.top = `${(100 * next[1]) / canvas.height}%`;
      const part = (v, of) => Math.round((100 * v) / of);
      const where = `${part(next[0], canvas.width)} % from the left, ${part(next[1], canvas.height)} % from the top`;
      canvas.setAttribute("aria-label", `Drawing area, at ${where}`);
    });
  }

  line(from, to) {
    const { context } = this;
    context.strokeStyle = this.ink;
    context.lineWidth = this.brush;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
    this.tell();
  }

  tell() { this.changed(this.values()); }

  /** Show an image, stretched to the model's shape as its own decoder does. */
  async image(file) {
    let bitmap;
    try {
      bitmap = await createImageBitmap(file);
    } catch {
      this.failed(new Error(`${file.name || "That"} is not an image that this browser can read.`));
      return;
    }
    const [height, width] = this.size;
    const small = document.createElement("canvas").getContext("2d");
    Object.assign(small.canvas, { width, height });
    Object.assign(small, { imageSmoothingQuality: "high", fillStyle: "#000" });
    small.fillRect(0, 0, width, height);
    small.drawImage(bitmap, 0, 0, width, height);
    this.numbers(this.averaged(small.getImageData(0, 0, width, height).data, 1));
  }

  /** Show numbers of the model's range; what is sent are they, exactly. */
  numbers(values) {
    const small = paint(document.createElement("canvas"), values, this.size, this.range);
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(small, 0, 0, this.canvas.width, this.canvas.height);
    this.context.imageSmoothingEnabled = true;
    this.centred = false;
    this.changed(values);
  }

  values() {
    const { width, height } = this.canvas;
    const box = this.fit && this.centred && this.drawn();
    let source = this.context;
    if (box) {
      const side = Math.max(box.width / width, box.height / height) / FILL;
      const [w, h] = [side * width, side * height];
      const [x, y] = [box.x + box.width / 2 - w / 2, box.y + box.height / 2 - h / 2];
      this.spare.fillStyle = "#000";
      this.spare.fillRect(0, 0, width, height);
      this.spare.drawImage(this.canvas, x, y, w, h, 0, 0, width, height);
      source = this.spare;
    }
    return this.averaged(source.getImageData(0, 0, width, height).data);
  }

  /** The box around everything that is not background. */
  drawn() {
    const { width, height } = this.canvas;
    const { data } = this.context.getImageData(0, 0, width, height);
    let [left, top, right, bottom] = [width, height, -1, -1];
    for (let y = 0, i = 0; y < height; y++) {
      for (let x = 0; x < width; x++, i += 4) {
        if (data[i] + data[i + 1] + data[i + 2] === 0) continue;
        left = Math.min(left, x); right = Math.max(right, x);
        top = Math.min(top, y); bottom = Math.max(bottom, y);
      }
    }
    if (right < 0) return null;
    return { x: left, y: top, width: right - left + 1, height: bottom - top + 1 };
  }

  /** Blocks of pixels averaged to the model's resolution, in its range. */
  averaged(data, times = this.times) {
    const [height, width, channels] = this.size;
    const [low, high] = this.range;
    const sums = new Float64Array(height * width * channels);
    for (let y = 0, i = 0; y < height * times; y++) {
      for (let x = 0; x < width * times; x++, i += 4) {
        const at = (Math.floor(y / times) * width + Math.floor(x / times)) * channels;
        if (channels === 1) sums[at] += 0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2];
        else for (let c = 0; c < 3; c++) sums[at + c] += data[i + c];
      }
    }
    return Array.from(sums, (sum) => low + ((high - low) * sum) / (255 * times * times));
  }
}
