// Dark or light: that of the system until the user selects one.

const KEY = "caloric-theme";
const ORDER = ["system", "dark", "light"];

export function remembered(key) {
  try { return localStorage.getItem(key); } catch { return null; }  // not in every file
}

export function remember(key, value) {
  try { localStorage.setItem(key, value); } catch { /* then for this time only */ }
}

function apply(theme, button) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const next = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
  const words = `Theme: ${theme === "system" ? "system" : theme}`;
  button.setAttribute("aria-label", words);
  button.title = `${words}; next: ${next} (t)`;
}

export function themed(button) {
  let theme = ORDER.includes(remembered(KEY)) ? remembered(KEY) : "system";
  apply(theme, button);
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    remember(KEY, theme);
    apply(theme, button);
  });
}
