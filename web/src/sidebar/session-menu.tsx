import { useMirror } from "@holdfast/react";
import { Ellipsis, Link2, PencilLine, Trash2 } from "lucide-react";
import { type ReactElement, useState } from "react";
import { linkTo, navigate, parseRoute } from "../lib/route.ts";
import { Dialog } from "../ui/dialog.tsx";
import { Menu } from "../ui/menu.tsx";
import { useToasts } from "../ui/toast.tsx";

type Props = { readonly session: string; readonly title: string; readonly small?: boolean };

/** What can be done with a session as a whole. */
export function SessionMenu({ session, title, small = false }: Props): ReactElement {
  const [asking, setAsking] = useState<"rename" | "delete">();
  const { act, say } = useToasts();
  const copy = async () => {
    await navigator.clipboard.writeText(linkTo({ name: "session", session }));
    say("The link is copied.");
  };
  return (
    <>
      <Menu
        label={`More for ${title || "this conversation"}`}
        icon={<Ellipsis size={18} />}
        small={small}
        items={[
          { label: "Rename", icon: <PencilLine size={16} />, onSelect: () => setAsking("rename") },
          { label: "Copy link", icon: <Link2 size={16} />, onSelect: () => act("copy the link", copy()) },
          { label: "Delete", icon: <Trash2 size={16} />, danger: true, onSelect: () => setAsking("delete") },
        ]}
      />
      {asking === "rename" && (
        <RenameDialog session={session} title={title} onClose={() => setAsking(undefined)} />
      )}
      {asking === "delete" && (
        <DeleteDialog session={session} title={title} onClose={() => setAsking(undefined)} />
      )}
    </>
  );
}

type DialogProps = { readonly session: string; readonly title: string; readonly onClose: () => void };

function RenameDialog({ session, title, onClose }: DialogProps): ReactElement {
  const mirror = useMirror(session);
  const { act } = useToasts();
  return (
    <Dialog label="Rename the conversation" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const next = String(new FormData(event.currentTarget).get("title") ?? "").trim();
          if (next && next !== title) act("rename it", mirror.rename(next));
          onClose();
        }}
      >
        <h2>Rename the conversation</h2>
        <input
          className="field"
          name="title"
          aria-label="Title"
          defaultValue={title}
          maxLength={120}
          autoFocus
        />
        <div className="dialog-actions">
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="button primary">
            Rename
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function DeleteDialog({ session, title, onClose }: DialogProps): ReactElement {
  const mirror = useMirror(session);
  const { act, say } = useToasts();
  const remove = async () => {
    const shown = parseRoute(new URL(window.location.href));
    await mirror.delete();
    if (shown.name === "session" && shown.session === session) navigate({ name: "new" });
    say("The conversation is deleted.");
  };
  return (
    <Dialog label="Delete the conversation" onClose={onClose}>
      <h2>Delete “{title || "Untitled"}”?</h2>
      <p>Everything in it goes, at once and for ever. A run that is under way is ended.</p>
      <div className="dialog-actions">
        {/* biome-ignore lint/a11y/noAutofocus: of two answers, the harmless one. */}
        <button type="button" className="button" onClick={onClose} autoFocus>
          Keep it
        </button>
        <button
          type="button"
          className="button danger solid"
          onClick={() => {
            act("delete it", remove());
            onClose();
          }}
        >
          Delete
        </button>
      </div>
    </Dialog>
  );
}
