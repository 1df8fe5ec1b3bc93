export * from "diff/libesm/diff/word.js";
