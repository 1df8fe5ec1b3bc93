export default { printWidth: 120, embeddedLanguageFormatting: "off" };
