// A classic script, so that the first paint has the chosen colors already.
(() => {
  try {
    const theme = localStorage.getItem("otel-rollout.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is refused in some private windows.
  }
})();
