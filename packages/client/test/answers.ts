import { stringifyJson } from "../src/json.ts";

export function json(status: number, body: unknown, headers: Record<string, string> = {}): Response {
  return new Response(status === 204 ? null : stringifyJson(body), {
    status,
    headers: { "Content-Type": status < 400 ? "application/json" : "application/problem+json", ...headers },
  });
}

export function problem(status: number, code: string, more: object = {}): Response {
  return json(status, {
    type: "about:blank",
    title: code,
    status,
    code,
    detail: `the code is ${code}`,
    ...more,
  });
}
