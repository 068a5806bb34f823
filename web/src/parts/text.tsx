/** Hostile text on the page. */
import { pieces } from "../text";

/** A text of a tenant as text nodes; `find` marks what was searched for. */
export function Text({ raw, find }: { raw: string; find?: string }) {
  const all = pieces(raw);
  const only = all[0];
  if (all.length === 1 && only && only.style === "" && !only.code && !find) return <>{only.text}</>;
  return (
    <>
      {all.map((piece) => {
        const style = piece.code ? `code-point ${piece.style}` : piece.style;
        const text = find && !piece.code ? <Marked text={piece.text} find={find} /> : piece.text;
        return style ? <span class={style}>{text}</span> : text;
      })}
    </>
  );
}

/** `text` with every place of `find` marked, upper and lower case alike. */
function Marked({ text, find }: { text: string; find: string }) {
  const [low, wanted] = [text.toLowerCase(), find.toLowerCase()];
  if (low.length !== text.length) return <>{text}</>;
  const parts = [];
  let from = 0;
  for (let at = low.indexOf(wanted); at >= 0 && parts.length < 200; at = low.indexOf(wanted, from)) {
    parts.push(text.slice(from, at), <mark>{text.slice(at, at + find.length)}</mark>);
    from = at + find.length;
  }
  parts.push(text.slice(from));
  return <>{parts}</>;
}
