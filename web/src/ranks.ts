/** Ranges of ranks as texts. Pure. */

/** The first `most` ranks of a text such as `0-516,518-1023`, and how many more it names. */
export function ranksIn(text: string, most: number): { ranks: number[]; more: number } {
  const ranks: number[] = [];
  let more = 0;
  for (const part of text.split(",")) {
    const found = /^\s*(\d{1,9})(?:-(\d{1,9}))?\s*$/.exec(part);
    if (!found) continue;
    const from = Number(found[1]);
    const to = Number(found[2] ?? found[1]);
    if (to < from) continue;
    const fits = Math.max(0, Math.min(to - from + 1, most - ranks.length));
    for (let rank = from; rank < from + fits; rank += 1) ranks.push(rank);
    more += to - from + 1 - fits;
  }
  return { ranks, more };
}
