// Long operations: their progress is shown, and Esc or a button cancels them.
import { $ } from "./page.js";

const UPDATE_INTERVAL = 250;  // milliseconds; shorter operations are not shown
const operations = [];  // pending ones; the first is shown
let updateTimer = 0;

export class Operation {
  // onCancel() is called when the user cancels the operation; the source knows its current step.
  constructor(label, source, onCancel = () => {}) {
    this.label = label;
    this.source = source;
    this.onCancel = onCancel;
    this.step = "";
    this.announced = false;  // to screen readers
    this.id = `${Date.now()}-${Math.random()}`;
    this.controller = new AbortController();
    this.start = performance.now();
    operations.push(this);
    updateTimer ||= setInterval(updateProgress, UPDATE_INTERVAL);
  }

  // Resolves to work(options), where the options are those of fetch.
  async run(work) {
    try {
      return await work({ signal: this.controller.signal, headers: { "x-task": this.id } });
    } finally { this.end(); }
  }

  // Stops the operation, on the server too, because the request disconnects.
  abort() {
    this.controller.abort();
    this.end();
  }

  end() {
    const index = operations.indexOf(this);
    if (index >= 0) operations.splice(index, 1);
    if (!operations.length) updateProgress();
  }
}

async function updateProgress() {
  const operation = operations[0], milliseconds = operation ? performance.now() - operation.start : 0;
  if (!operation) {
    clearInterval(updateTimer);
    updateTimer = 0;
    if (document.activeElement === $("cancel")) $("mode-matches").focus();  // the button disappears
  }
  $("progress").hidden = milliseconds < UPDATE_INTERVAL;
  if ($("progress").hidden) return;
  $("progress-text").textContent = operation.step ? `${operation.label}: ${operation.step}` : `${operation.label}…`;
  $("elapsed").textContent = milliseconds < 1000 ? "" : `(${Math.round(milliseconds / 1000)} s)`;
  if (!operation.announced) $("announcement").textContent = operation.label;
  operation.announced = true;
  operation.step = await operation.source.step(operation.id) || operation.step;
}

// Cancels all operations; returns false if there are none.
export function cancelOperations() {
  const cancelled = [...operations];
  for (const operation of cancelled) {
    operation.abort();
    operation.onCancel();
  }
  if (cancelled.length) $("announcement").textContent = "Cancelled";
  return cancelled.length > 0;
}
