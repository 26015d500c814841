import { useSyncExternalStore } from "react";

/** What the page shows. The address says it, so that a link leads to the same. */
export type Route =
  | { readonly name: "new" }
  | { readonly name: "session"; readonly session: string; readonly message?: string }
  | { readonly name: "approvals" }
  | { readonly name: "unknown" };

const id = /^[A-Za-z0-9_-]{1,128}$/;

/** Reads an address. */
export function parseRoute(url: URL): Route {
  const [, first, second, ...rest] = url.pathname.split("/");
  if (first === "" && second === undefined) return { name: "new" };
  if (first === "approvals" && !second) return { name: "approvals" };
  if (first === "s" && second && rest.length === 0 && id.test(second)) {
    const message = url.searchParams.get("m");
    return { name: "session", session: second, ...(message && id.test(message) && { message }) };
  }
  return { name: "unknown" };
}

/** The address of a route. */
export function hrefOf(route: Route): string {
  switch (route.name) {
    case "session":
      return `/s/${route.session}${route.message ? `?m=${route.message}` : ""}`;
    case "approvals":
      return "/approvals";
    default:
      return "/";
  }
}

/** The whole address of a route, to give to somebody. */
export function linkTo(route: Route): string {
  return new URL(hrefOf(route), window.location.href).href;
}

let shown: { href: string; route: Route } | undefined;
const listeners = new Set<() => void>();

function current(): Route {
  const { href } = window.location;
  if (shown?.href !== href) shown = { href, route: parseRoute(new URL(href)) };
  return shown.route;
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  window.addEventListener("popstate", listener);
  return () => {
    listeners.delete(listener);
    window.removeEventListener("popstate", listener);
  };
}

/** Goes somewhere. `replace` leaves no step back. */
export function navigate(route: Route, replace = false): void {
  const href = hrefOf(route);
  if (replace) window.history.replaceState(null, "", href);
  else window.history.pushState(null, "", href);
  for (const listener of [...listeners]) listener();
}

/** What the address says. */
export function useRoute(): Route {
  return useSyncExternalStore(subscribe, current);
}
