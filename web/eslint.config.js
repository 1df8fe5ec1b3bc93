import js from "@eslint/js";

// Types are TypeScript's matter, and so is what a browser knows.
export default [
  { ignores: ["**/node_modules/", "**/vendor/"] },
  js.configs.recommended,
  {
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-undef": "off",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-script-url": "error",
      "no-console": "error",
      "prefer-const": "error",
      "no-unused-vars": ["error", { ignoreRestSiblings: true }],
      "no-var": "error",
      eqeqeq: ["error", "always", { null: "ignore" }],
      "no-restricted-properties": [
        "error",
        ...["innerHTML", "outerHTML", "insertAdjacentHTML", "srcdoc"].map((property) => ({ property })),
        { object: "document", property: "write" },
      ],
      "no-restricted-syntax": [
        "error",
        { selector: "Literal[value='dangerouslySetInnerHTML']", message: "Text of a model is never markup." },
        {
          selector: "TemplateElement[value.raw=/dangerouslySetInnerHTML/]",
          message: "Text of a model is never markup.",
        },
        {
          selector: "ImportExpression",
          message: "An export inlines modules, which it finds by their import statements.",
        },
      ],
    },
  },
];
