import { type ReactElement, useState } from "react";

type Props = {
  readonly text: string;
  readonly hint: string;
  readonly submitWords: string;
  readonly onSubmit: (text: string) => void;
  readonly onCancel: () => void;
};

/** A box to say something else in the place of what was said. */
export function EditBox({ text, hint, submitWords, onSubmit, onCancel }: Props): ReactElement {
  const [value, setValue] = useState(text);
  const ready = value.trim() !== "";
  return (
    <form
      className="edit-box"
      onSubmit={(event) => {
        event.preventDefault();
        if (ready) onSubmit(value.trim());
      }}
    >
      <textarea
        aria-label="Edit the message"
        value={value}
        rows={Math.min(12, Math.max(2, value.split("\n").length))}
        // biome-ignore lint/a11y/noAutofocus: the box was opened to type here.
        autoFocus
        onFocus={(event) => event.target.setSelectionRange(value.length, value.length)}
        onChange={(event) => setValue(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.stopPropagation();
            onCancel();
          }
          if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault();
            if (ready) onSubmit(value.trim());
          }
        }}
      />
      <div className="edit-box-foot">
        <p>{hint}</p>
        <button type="button" className="button quiet" onClick={onCancel}>
          Cancel
        </button>
        <button type="submit" className="button primary" disabled={!ready}>
          {submitWords}
        </button>
      </div>
    </form>
  );
}
