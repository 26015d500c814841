import { defineConfig } from "vite";

const target = process.env.HOLDFAST_URL ?? "http://127.0.0.1:8787";

export default defineConfig({
  server: { proxy: { "/api/chat": target, "/v1": { target, ws: true } } },
});
