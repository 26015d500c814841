import { useApprovals, useSessions } from "@holdfast/react";
import { CircleHelp, Moon, Search, ShieldCheck, SquarePen, Sun, SunMoon } from "lucide-react";
import { type ReactElement, type Ref, useEffect, useMemo, useRef } from "react";
import { Virtualizer } from "virtua";
import { useNow } from "../lib/clock.ts";
import { navigate, type Route } from "../lib/route.ts";
import { setTheme, type Theme, useTheme } from "../lib/theme.ts";
import { dayGroup } from "../lib/words.ts";
import { IconButton } from "../ui/icon-button.tsx";
import { Link } from "../ui/link.tsx";
import { Logo } from "../ui/logo.tsx";
import { ConnectionLine } from "./connection.tsx";
import { SessionRow } from "./session-row.tsx";

type Props = {
  readonly route: Route;
  readonly searchRef: Ref<HTMLInputElement>;
  readonly onHelp: () => void;
};

/** The side of the page: where to go. */
export function Sidebar({ route, searchRef, onHelp }: Props): ReactElement {
  const waiting = useApprovals((view) => view.items.length);
  return (
    <nav className="sidebar" aria-label="Conversations">
      <div className="sidebar-head">
        <Link className="brand" to={{ name: "new" }}>
          <Logo />
          Holdfast
        </Link>
        <IconButton label="Keyboard shortcuts" onClick={onHelp}>
          <CircleHelp size={18} />
        </IconButton>
      </div>
      <div className="sidebar-nav">
        <Link
          className="nav-item"
          to={{ name: "new" }}
          aria-current={route.name === "new" ? "page" : undefined}
        >
          <SquarePen size={18} />
          <span>New conversation</span>
        </Link>
        <Link
          className="nav-item"
          to={{ name: "approvals" }}
          aria-current={route.name === "approvals" ? "page" : undefined}
        >
          <ShieldCheck size={18} />
          <span>Approvals</span>
          {waiting > 0 && (
            <span className="badge warn" title={`${waiting} waiting`}>
              {waiting}
              <span className="sr-only"> waiting</span>
            </span>
          )}
        </Link>
        <SearchField inputRef={searchRef} />
      </div>
      <SessionList current={route.name === "session" ? route.session : undefined} />
      <div className="sidebar-foot">
        <ConnectionLine />
        <ThemeButton />
      </div>
    </nav>
  );
}

function SearchField({ inputRef }: { inputRef: Ref<HTMLInputElement> }): ReactElement {
  const { search, setSearch } = useSessions();
  return (
    <div className="search">
      <Search size={18} aria-hidden="true" />
      <input
        ref={inputRef}
        type="search"
        aria-label="Search conversations"
        placeholder="Search"
        value={search}
        onChange={(event) => setSearch(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") setSearch("");
          if (event.key === "ArrowDown") {
            event.preventDefault();
            document.querySelector<HTMLElement>(".session-link")?.focus();
          }
        }}
      />
    </div>
  );
}

function SessionList({ current }: { current: string | undefined }): ReactElement {
  const { items, status, failure, search, hasMore, loadMore } = useSessions();
  const now = useNow(60);
  const scroller = useRef<HTMLDivElement>(null);
  const end = useRef<HTMLDivElement>(null);
  const entries = useMemo(() => {
    let group = "";
    return items.flatMap((item) => {
      if (item.parent) return []; // the card of its call leads to it
      const its = dayGroup(item.updatedAt, now);
      const entry = { key: item.id, item };
      if (its === group) return [entry];
      group = its;
      return [{ key: its, group: its }, entry];
    });
  }, [items, now]);

  useEffect(() => {
    const element = end.current;
    // Each time the list grows, its end is looked for anew.
    if (!element || !hasMore || entries.length === 0) return;
    const observer = new IntersectionObserver(([entry]) => entry?.isIntersecting && void loadMore(), {
      root: scroller.current,
      rootMargin: "400px",
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [hasMore, loadMore, entries.length]);

  function move(event: React.KeyboardEvent): void {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const links = [...(scroller.current?.querySelectorAll<HTMLElement>(".session-link") ?? [])];
    const at = links.indexOf(document.activeElement as HTMLElement);
    if (at < 0) return;
    event.preventDefault();
    links[at + step]?.focus();
  }

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the arrow keys are a help; Tab reaches every link as well.
    <div ref={scroller} className="session-list" onKeyDown={move}>
      {status === "loading" && items.length === 0 && <Skeletons />}
      {failure && items.length === 0 && (
        <p className="sidebar-note">The list cannot be loaded now. It is tried again.</p>
      )}
      {status === "ready" && items.length === 0 && (
        <p className="sidebar-note">
          {search ? `No title has “${search}”.` : "What you start will be here."}
        </p>
      )}
      <Virtualizer scrollRef={scroller} data={entries}>
        {(entry) =>
          "item" in entry ? (
            <SessionRow key={entry.key} item={entry.item} current={entry.item.id === current} now={now} />
          ) : (
            <h2 key={entry.key} className="session-group">
              {entry.group}
            </h2>
          )
        }
      </Virtualizer>
      <div ref={end} />
    </div>
  );
}

function Skeletons(): ReactElement {
  return (
    <div aria-hidden="true">
      {[80, 62, 90, 70, 54, 84].map((width) => (
        <div key={width} className="skeleton session-skeleton" style={{ width: `${width}%` }} />
      ))}
    </div>
  );
}

const nextTheme: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const themeWords: Record<Theme, string> = { system: "as the system", light: "light", dark: "dark" };

function ThemeButton(): ReactElement {
  const theme = useTheme();
  const Icon = { system: SunMoon, light: Sun, dark: Moon }[theme];
  return (
    <IconButton
      label={`Colours: ${themeWords[theme]}. Change to ${themeWords[nextTheme[theme]]}`}
      onClick={() => setTheme(nextTheme[theme])}
    >
      <Icon size={18} />
    </IconButton>
  );
}

/** Goes to the session before or after the one that is shown. */
export function stepSession(ids: readonly string[], current: string | undefined, step: 1 | -1): void {
  const at = current ? ids.indexOf(current) : -1;
  const next = ids[at < 0 ? 0 : at + step];
  if (next) navigate({ name: "session", session: next });
}
