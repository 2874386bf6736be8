// Images as numbers, and numbers as images: the drawing area, image files, and small canvases.

const MIN_SIDE = 256; // pixels of the drawing area
const FILL = 0.9; // share of the frame that a centred drawing takes

/** Draw the `values` of an image of `shape`, in the range from `low` to `high`, on `canvas`. */
export function paint(canvas, values, [height, width, channels], [low, high]) {
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) {
      const value = values[i * channels + (channels === 1 ? 0 : c)];
      image.data[4 * i + c] = (255 * (value - low)) / (high - low);
    }
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** Return a canvas that shows `values`. */
export function picture(values, facts, label) {
  const canvas = paint(document.createElement("canvas"), values, facts.input_shape, facts.range);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  return canvas;
}

/** The drawing area; calls `onChange(values)` with a flat array in the model's range. */
export class Drawing {
  constructor(canvas, onChange, onError) {
    this.canvas = canvas;
    this.onChange = onChange;
    this.onError = onError;
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.scratch = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    this.isHandDrawn = true; // false for image files and examples, which are not centred
    this.ink = "#ffffff";
    this.fit = true; // centre and scale drawings
    this.cursor = [0, 0];
    this.listen();
  }

  /** Clear the area for a model with inputs of `shape` and `range`. */
  reset(shape, range) {
    const [height, width] = shape;
    const scale = Math.ceil(MIN_SIDE / Math.max(height, width));
    Object.assign(this, { shape, range, scale });
    for (const { canvas } of [this.context, this.scratch]) {
      canvas.width = width * scale;
      canvas.height = height * scale;
    }
    this.brush = Math.max(scale, this.canvas.width / 14);
    if (shape[2] === 1) this.ink = "#ffffff";
    this.cursor = [this.canvas.width / 2, this.canvas.height / 2];
    this.clear();
  }

  clear() {
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.isHandDrawn = true;
  }

  listen() {
    const { canvas } = this;
    const position = (event) => {
      const box = canvas.getBoundingClientRect();
      return [
        ((event.clientX - box.left) * canvas.width) / box.width,
        ((event.clientY - box.top) * canvas.height) / box.height,
      ];
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.line(position(event), position(event));
      this.last = position(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.last) return;
      this.line(this.last, position(event));
      this.last = position(event);
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, () => { this.last = null; });
    }
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!step) return;
      event.preventDefault();
      this.moveCursor(step, event.shiftKey);
    });
  }

  /** Move the cursor of the keyboard by half a brush, with a line if `draws`. */
  moveCursor([dx, dy], draws) {
    const { canvas } = this;
    const clamp = (value, max) => Math.min(Math.max(value, 0), max);
    const next = [
      clamp(this.cursor[0] + (dx * this.brush) / 2, canvas.width),
      clamp(this.cursor[1] + (dy * this.brush) / 2, canvas.height),
    ];
    if (draws) this.line(this.cursor, next);
    this.cursor = next;
    const mark = canvas.parentElement.querySelector(".pen");
    mark.style.left = `${(100 * next[0]) / canvas.width}%`;
    mark.style.top = `${(100 * next[1]) / canvas.height}%`;
    const [x, y] = [(100 * next[0]) / canvas.width, (100 * next[1]) / canvas.height].map(Math.round);
    canvas.setAttribute("aria-label", `Drawing area, at ${x} % from the left, ${y} % from the top`);
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
    this.notify();
  }

  notify() { this.onChange(this.values()); }

  /** Show an image file, stretched to the model's shape as the model's own decoder does it. */
  async showFile(file) {
    let bitmap;
    try {
      bitmap = await createImageBitmap(file);
    } catch {
      this.onError(new Error(`${file.name || "The file"} is not an image that this browser can read.`));
      return;
    }
    const [height, width] = this.shape;
    const small = document.createElement("canvas").getContext("2d");
    Object.assign(small.canvas, { width, height });
    Object.assign(small, { imageSmoothingQuality: "high", fillStyle: "#000" });
    small.fillRect(0, 0, width, height);
    small.drawImage(bitmap, 0, 0, width, height);
    this.showValues(this.downsample(small.getImageData(0, 0, width, height).data, 1));
  }

  /** Show values in the model's range; exactly these are sent. */
  showValues(values) {
    const small = paint(document.createElement("canvas"), values, this.shape, this.range);
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(small, 0, 0, this.canvas.width, this.canvas.height);
    this.context.imageSmoothingEnabled = true;
    this.isHandDrawn = false;
    this.onChange(values);
  }

  /** Return the drawing in the model's shape and range, centred and scaled if it should be. */
  values() {
    const { width, height } = this.canvas;
    const box = this.fit && this.isHandDrawn && this.boundingBox();
    let source = this.context;
    if (box) {
      const side = Math.max(box.width / width, box.height / height) / FILL;
      const [w, h] = [side * width, side * height];
      const [x, y] = [box.x + box.width / 2 - w / 2, box.y + box.height / 2 - h / 2];
      this.scratch.fillStyle = "#000";
      this.scratch.fillRect(0, 0, width, height);
      this.scratch.drawImage(this.canvas, x, y, w, h, 0, 0, width, height);
      source = this.scratch;
    }
    return this.downsample(source.getImageData(0, 0, width, height).data);
  }

  /** Return the box around everything that is not background; null if there is nothing. */
  boundingBox() {
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

  /** Return the means of blocks of `scale` x `scale` pixels, in the model's range. */
  downsample(data, scale = this.scale) {
    const [height, width, channels] = this.shape;
    const [low, high] = this.range;
    const sums = new Float64Array(height * width * channels);
    for (let y = 0, i = 0; y < height * scale; y++) {
      for (let x = 0; x < width * scale; x++, i += 4) {
        const at = (Math.floor(y / scale) * width + Math.floor(x / scale)) * channels;
        if (channels === 1) sums[at] += 0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2];
        else for (let c = 0; c < 3; c++) sums[at + c] += data[i + c];
      }
    }
    return Array.from(sums, (sum) => low + ((high - low) * sum) / (255 * scale * scale));
  }
}
