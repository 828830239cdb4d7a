// Access to elements of the page, and creation of new ones.

export const $ = (id) => document.getElementById(id);

export const element = (name, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
};

// An error message that disappears after nine seconds.
let errorTimer = 0;
export function showError(error) {
  if (error.name === "AbortError") return;
  $("error").textContent = error.message;
  $("error").hidden = false;
  clearTimeout(errorTimer);
  errorTimer = setTimeout(() => { $("error").hidden = true; }, 9000);
}
