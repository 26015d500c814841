import type { Run } from "@holdfast/client";
import { useClient, useRun, useSession, useSessions } from "@holdfast/react";
import { Activity, Menu as MenuIcon, SquarePen } from "lucide-react";
import { lazy, type ReactElement, Suspense, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { ApprovalsPage } from "./approvals/approvals-page.tsx";
import { SessionPage } from "./conversation/session-page.tsx";
import { useMedia } from "./lib/media.ts";
import { navigate, type Route, useRoute } from "./lib/route.ts";
import { keysOf, type Shortcut, useShortcuts } from "./lib/shortcuts.ts";
import { preloadMarkdown } from "./markdown/prose.tsx";
import { ConnectionBanner } from "./sidebar/connection.tsx";
import { SessionMenu } from "./sidebar/session-menu.tsx";
import { Sidebar, stepSession } from "./sidebar/sidebar.tsx";
import { Dialog } from "./ui/dialog.tsx";
import { IconButton } from "./ui/icon-button.tsx";
import { useToasts } from "./ui/toast.tsx";

const Inspector = lazy(() => import("./inspector/inspector.tsx"));
preloadMarkdown();

type Drawer = { readonly session: string; readonly run?: string };

/** The page: the sessions at the side, one of them, and what is known of its runs. */
export function App(): ReactElement {
  const client = useClient();
  const route = useRoute();
  const narrow = useMedia("(max-width: 720px)");
  const roomy = useMedia("(min-width: 1180px)");
  const [sideOpen, setSideOpen] = useState(false);
  const [drawer, setDrawer] = useState<Drawer>();
  const [help, setHelp] = useState(false);
  const composer = useRef<HTMLTextAreaElement>(null);
  const search = useRef<HTMLInputElement>(null);

  // A new address "/" is a new session, which its first message begins.
  const fresh = useMemo(
    () => (route.name === "new" ? client.sessions.create().id : undefined),
    [route, client],
  );
  const session = route.name === "session" ? route.session : fresh;

  useEffect(() => {
    setSideOpen(false);
    setDrawer((open) => (open && open.session !== session ? undefined : open));
    if (window.matchMedia("(pointer: fine)").matches) composer.current?.focus();
  }, [session]);

  const inspect = useCallback(
    (run?: string) => {
      if (session) setDrawer({ session, ...(run && { run }) });
    },
    [session],
  );

  const shortcuts = usePageShortcuts({
    session,
    toggleInspector: () => (drawer ? setDrawer(undefined) : inspect()),
    focusComposer: () => composer.current?.focus(),
    search: () => {
      setSideOpen(true);
      requestAnimationFrame(() => search.current?.focus());
    },
    help: () => setHelp(true),
  });

  const sidebar = <Sidebar route={route} searchRef={search} onHelp={() => setHelp(true)} />;
  const inspector = drawer && drawer.session === session && (
    <Suspense fallback={null}>
      <Inspector session={drawer.session} run={drawer.run} onClose={() => setDrawer(undefined)} />
    </Suspense>
  );

  return (
    <div className={`app ${narrow ? "no-side" : ""} ${inspector && roomy ? "with-drawer" : ""}`}>
      <a className="skip" href="#main">
        Skip to the conversation
      </a>
      {!narrow && sidebar}
      {narrow && sideOpen && (
        <Dialog className="side-dialog" label="Conversations" onClose={() => setSideOpen(false)}>
          {sidebar}
        </Dialog>
      )}
      <main id="main" className="main" tabIndex={-1}>
        <Header
          route={route}
          session={session}
          narrow={narrow}
          inspecting={drawer !== undefined}
          onMenu={() => setSideOpen(true)}
          onInspect={() => (drawer ? setDrawer(undefined) : inspect())}
        />
        <ConnectionBanner />
        {route.name === "approvals" && <ApprovalsPage />}
        {route.name === "unknown" && <Lost />}
        {session && (
          <SessionPage
            key={session}
            id={session}
            fresh={fresh !== undefined}
            linked={route.name === "session" ? route.message : undefined}
            composer={composer}
            onInspect={inspect}
          />
        )}
      </main>
      {roomy
        ? inspector
        : inspector && (
            <Dialog className="side-dialog right" label="Run inspector" onClose={() => setDrawer(undefined)}>
              {inspector}
            </Dialog>
          )}
      {help && <Help shortcuts={shortcuts} onClose={() => setHelp(false)} />}
    </div>
  );
}

type HeaderProps = {
  readonly route: Route;
  readonly session: string | undefined;
  readonly narrow: boolean;
  readonly inspecting: boolean;
  readonly onMenu: () => void;
  readonly onInspect: () => void;
};

function Header({ route, session, narrow, inspecting, onMenu, onInspect }: HeaderProps): ReactElement {
  return (
    <header className={`header ${route.name === "new" ? "bare" : ""}`}>
      {narrow && (
        <IconButton label="Conversations" onClick={onMenu}>
          <MenuIcon size={20} />
        </IconButton>
      )}
      {route.name === "session" && session ? (
        <SessionHeader session={session} inspecting={inspecting} onInspect={onInspect} />
      ) : (
        <PageTitle
          title={route.name === "approvals" ? "Approvals" : "New conversation"}
          shown={route.name !== "new"}
        />
      )}
      {narrow && route.name !== "new" && (
        <IconButton label="New conversation" onClick={() => navigate({ name: "new" })}>
          <SquarePen size={18} />
        </IconButton>
      )}
    </header>
  );
}

function PageTitle({ title, shown }: { title: string; shown: boolean }): ReactElement {
  useEffect(() => {
    document.title = `${title} · Holdfast`;
  }, [title]);
  return <h1 className={shown ? "header-title" : "sr-only"}>{title}</h1>;
}

type SessionHeaderProps = {
  readonly session: string;
  readonly inspecting: boolean;
  readonly onInspect: () => void;
};

function SessionHeader({ session, inspecting, onInspect }: SessionHeaderProps): ReactElement {
  const row = useSession(session, (view) => view.session);
  const run = useRun(session);
  const listed = useSessions((view) => view.items.find(({ id }) => id === session)?.title);
  const title = row?.title || listed || "";
  useEffect(() => {
    document.title = `${title || "Conversation"} · Holdfast`;
  }, [title]);
  return (
    <>
      <div className="header-title">
        <h1 className="truncate">
          {title || <span className={row ? "muted" : "sr-only"}>{row ? "Untitled" : "Conversation"}</span>}
        </h1>
        {run && <RunBadge run={run} />}
      </div>
      {row && (
        <IconButton label="How it went" aria-pressed={inspecting} onClick={onInspect}>
          <Activity size={18} />
        </IconButton>
      )}
      {row && <SessionMenu session={session} title={title} />}
    </>
  );
}

function RunBadge({ run }: { run: Run }): ReactElement {
  const waits = run.status === "waiting";
  const person = run.waitingReason === "approval" || run.waitingReason === "tool_outcome";
  const words = waits
    ? person
      ? "Waits for you"
      : "Waiting"
    : run.status === "queued"
      ? "Queued"
      : "Running";
  return (
    <span className={`badge ${waits ? "warn" : "accent"}`}>
      <span className={`dot ${waits ? "waiting" : "running"}`} aria-hidden="true" />
      {run.cancelRequestedAt ? "Stopping" : words}
    </span>
  );
}

function Lost(): ReactElement {
  return (
    <div className="page-state">
      <h2>There is nothing here</h2>
      <p>The address is not one of this page.</p>
      <button type="button" className="button primary" onClick={() => navigate({ name: "new" })}>
        New conversation
      </button>
    </div>
  );
}

function Help({ shortcuts, onClose }: { shortcuts: readonly Shortcut[]; onClose: () => void }): ReactElement {
  return (
    <Dialog label="Keyboard shortcuts" onClose={onClose}>
      <h2>Keyboard shortcuts</h2>
      <dl className="shortcuts">
        {shortcuts.map((shortcut) => (
          <div key={shortcut.words} style={{ display: "contents" }}>
            <dt>{shortcut.words}</dt>
            <dd>
              {keysOf(shortcut).map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
      <div className="dialog-actions">
        <button type="button" className="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

type ShortcutParts = {
  readonly session: string | undefined;
  readonly toggleInspector: () => void;
  readonly focusComposer: () => void;
  readonly search: () => void;
  readonly help: () => void;
};

function usePageShortcuts(parts: ShortcutParts): readonly Shortcut[] {
  const { sessions } = useClient();
  const { act } = useToasts();
  const { session, toggleInspector, focusComposer, search, help } = parts;
  const step = (by: 1 | -1) =>
    stepSession(
      sessions.getSnapshot().items.map(({ id }) => id),
      session,
      by,
    );
  const shortcuts: Shortcut[] = [
    { code: "KeyK", mod: true, words: "Search conversations", run: search },
    { code: "KeyN", alt: true, words: "New conversation", run: () => navigate({ name: "new" }) },
    { code: "KeyA", alt: true, words: "Approvals", run: () => navigate({ name: "approvals" }) },
    { code: "ArrowUp", alt: true, words: "Previous conversation", run: () => step(-1) },
    { code: "ArrowDown", alt: true, words: "Next conversation", run: () => step(1) },
    { code: "KeyI", alt: true, words: "How it went", run: toggleInspector },
    { code: "KeyM", alt: true, words: "Type a message", run: focusComposer },
    {
      code: "Period",
      mod: true,
      words: "Stop the run",
      run: () => {
        if (session) act("stop it", sessions.session(session).stop());
      },
    },
    { code: "Slash", mod: true, words: "These shortcuts", run: help },
  ];
  useShortcuts(shortcuts);
  return shortcuts;
}
