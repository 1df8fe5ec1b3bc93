export * from "diff/lib/diff/base.js";
export { default } from "diff/lib/diff/base.js";
