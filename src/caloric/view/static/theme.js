// Dark or light theme; that of the system until the user selects one.

const KEY = "caloric-theme";
const ORDER = ["system", "dark", "light"];

function remembered(key) {
  try { return localStorage.getItem(key); } catch { return null; }  // file pages may have no storage
}

function remember(key, value) {
  try { localStorage.setItem(key, value); } catch { /* not remembered */ }
}

function apply(theme, button) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const next = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
  const label = `Theme: ${theme}`;
  button.setAttribute("aria-label", label);
  button.title = `${label}; next: ${next} (t)`;
}

export function addThemeButton(button) {
  let theme = ORDER.includes(remembered(KEY)) ? remembered(KEY) : "system";
  apply(theme, button);
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    remember(KEY, theme);
    apply(theme, button);
  });
}
