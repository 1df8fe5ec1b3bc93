import { onConnection } from "../data/changes.js";
import { isExported, paths } from "../data/client.js";
import { rememberSteps } from "../data/selection.js";
import { addressAbove, addressOf, navigate } from "../data/router.js";
import { PAGES } from "../pages/index.js";
import { useEffect, useRef, useState } from "../vendor/preact_hooks.js";
import { breadcrumbs, titleOf } from "./breadcrumbs.js";
import { HelpDialog } from "./help.js";
import { html } from "./html.js";
import { useKeys } from "./keys.js";
import { SurroundingsContext } from "./place.js";
import { LoadingState } from "./states.js";
import { ThemeSwitch } from "./theme.js";
import { useData } from "./use_data.js";
import { useRoute } from "./use_route.js";

/** @import { Connection } from "../data/changes.js" */
/** @import { Route } from "../data/types.d.ts" */

/** What stands around every page: breadcrumbs, search, the keys of all pages, the state of the connection. */
export function Frame() {
  const route = useRoute();
  const { data: run, error: runError } = useData(paths.run());
  rememberSteps(run);
  const [place, setPlace] = useState(/** @type {Partial<Route> | null} */ (null));
  const [isHelpOpen, setHelpOpen] = useState(false);
  const [connection, setConnection] = useState(/** @type {Connection} */ ("open"));
  useEffect(() => onConnection(setConnection), []);

  const here = { ...route, ...place };
  const title = titleOf(here, run?.title, run?.steps);
  useEffect(() => {
    document.title = title;
  }, [title]);
  usePlaceKept(route);

  const search = addressOf({
    page: "search",
    query: here.step === undefined ? {} : { step: here.step },
    ...selected(here),
  });
  const up = addressAbove(here);
  useKeys(
    [
      { key: "/", does: "search", run: () => navigate(search) },
      { key: "?", does: "these keys", run: () => setHelpOpen(true) },
      ...(up === null ? [] : [{ key: "Escape", does: "up", run: () => navigate(up) }]),
      ...(here.sample === undefined || here.page === "group"
        ? []
        : [
            {
              key: "g",
              does: "the group",
              run: () =>
                navigate(
                  addressOf({
                    ...selected(here),
                    page: "group",
                    step: here.step,
                    sample: here.sample,
                  }),
                ),
            },
          ]),
      ...(here.step === undefined || here.page === "timeline"
        ? []
        : [
            {
              key: "t",
              does: "the step's timeline",
              run: () =>
                navigate(
                  addressOf({
                    ...selected(here),
                    page: "timeline",
                    step: here.step,
                  }),
                ),
            },
          ]),
    ],
    { isForAllPages: true },
  );

  const Page = PAGES[route.page];
  // An exported page names its data by selections, which need the run's experiments.
  const isReady = !isExported() || run || runError;
  return html`<${SurroundingsContext.Provider} value=${{ run, runError, setPlace }}>
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="frame">
      <nav aria-label="breadcrumbs">
        <ol class="breadcrumbs">
          ${breadcrumbs(here, run?.title, run?.steps).map(
            ({ text, address }, index, all) =>
              html`<li key=${index}>
                ${
                  index === all.length - 1
                    ? html`<span aria-current="page">${text}</span>`
                    : html`<a href=${address}>${text}</a>`
                }
              </li>`,
          )}
        </ol>
      </nav>
      <div class="frame-tools">
        ${run?.is_live && connection === "open" ? html`<a class="live" href="#/live" title="The folder is being written: what runs now"><span aria-hidden="true">●</span> live</a>` : null}
        ${isExported() ? null : html`<a class="tool" href=${search}>Search <kbd>/</kbd></a>`}
        <${ThemeSwitch} />
        <button type="button" class="icon-button" aria-label="Keys" title="Keys (?)" onClick=${() => setHelpOpen(true)}>?</button>
      </div>
    </header>
    <${Banner} connection=${connection} />
    <main id="main" tabindex="-1">${isReady ? html`<${Page} key=${pageKey(route)} route=${route} />` : html`<${LoadingState} />`}</main>
    ${isHelpOpen ? html`<${HelpDialog} onClose=${() => setHelpOpen(false)} />` : null}
  </${SurroundingsContext.Provider}>`;
}

/** @param {{connection: Connection}} props */
function Banner({ connection }) {
  if (connection === "open") return null;
  return html`<p class="banner" role="status">
    ${
      connection === "refused"
        ? html`The server wants another token, as after a new start: open the address that <code>otel-rollout view</code> printed last.`
        : html`The server doesn't answer: this is what was read before. Is <code>otel-rollout view</code> still running?`
    }
  </p>`;
}

/**
 * Keep how far each page was scrolled, for Back.
 *
 * @param {Route} route
 */
function usePlaceKept(route) {
  const places = useRef(/** @type {Map<string, number>} */ (new Map()));
  const key = pageKey(route);
  useEffect(() => {
    const kept = places.current.get(key) ?? 0;
    scrollTo(0, kept);
    return () => void places.current.set(key, scrollY);
  }, [key]);
}

/** @param {Route} route */
function pageKey({ page, step, sample, rollout, traceId, validate, experiment, run }) {
  return JSON.stringify([page, step, sample, rollout, traceId, validate, experiment, run]);
}

/** @param {Route} route */
function selected({ validate, experiment, run }) {
  return { validate, experiment, run };
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}
