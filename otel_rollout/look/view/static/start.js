import { Frame } from "./parts/frame.js";
import { html } from "./parts/html.js";
import { render } from "./vendor/preact.js";

render(html`<${Frame} />`, document.body);
