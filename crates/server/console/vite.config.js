// Fixed file names: the daemon embeds them, and sends them with an entity tag instead of a hashed name.
export default {
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "dist", emptyOutDir: true, target: "es2022", modulePreload: false, cssCodeSplit: false,
    rollupOptions: { output: { entryFileNames: "assets/console.js", assetFileNames: "assets/console[extname]", codeSplitting: false } },
  },
};
