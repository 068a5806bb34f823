/** Numbers over time: a line of the last values, and a band from least to greatest, so that a spike survives every zoom. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { path } from "../api";
import { commandOf } from "../clipboard";
import { useDocument } from "../load";
import { CopyCommand, Empty, Failure, Skeleton } from "../parts/basics";
import { Text } from "../parts/text";
import { route } from "../route";
import { dark, forced } from "../theme";
import type { OneSeries, SeriesDoc } from "../types";
import { clock, count, day, duration, figure, spaced, utc } from "../words";
import { columnsOf, extent } from "./series";

/** The tab: the window is that of the strip. */
export function MetricsTab({ run }: { run: string }) {
  const { from, to } = route.value.query;
  const series = useDocument<SeriesDoc>(path(["runs", run, "series"], { from, to }), ["series"], run);
  const { data } = series;
  const shown = (data?.series ?? []).filter((it) => it.buckets.length > 0);
  return (
    <>
      <div class="bar">
        <span class="quiet">{from ? "The window of the strip." : "The whole run."} The band spans the least and the greatest value of each point.</span>
        <CopyCommand command={commandOf(route.value, "metrics")} what="metrics" />
      </div>
      {series.problem && !data && <Failure problem={series.problem} retry={series.retry} />}
      {!data && !series.problem && <Skeleton lines={6} show={series.slow} />}
      {data && shown.length === 0 && <Empty text={from ? "No number was reported in this window." : "No rank has reported a number yet. Lines such as `step 40 loss 2.1` are read."} />}
      <div class="charts">
        {shown.map((it) => (
          <Chart series={it} key={it.name} />
        ))}
      </div>
    </>
  );
}

/** Times of the axis: days where they are a day apart. */
function timeWords(times: number[]): string[] {
  const apart = (times[1] ?? 0) - (times[0] ?? 0);
  return times.map((time) => (apart >= 86_400_000 ? day(time) : clock(time, apart < 60_000 ? "second" : "minute")));
}

/** The name of a series: a unit that is in it stands beside the numbers already. */
function nameOf(name: string): string {
  return name === "stepSeconds" ? "step time" : spaced(name);
}

function Chart({ series }: { series: OneSeries }) {
  const field = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const isDark = dark.value;
  const isForced = forced.value;
  const data = columnsOf(series.buckets);
  useEffect(() => {
    const element = field.current;
    if (!element) return;
    const style = getComputedStyle(element);
    const tone = (name: string) => style.getPropertyValue(name).trim();
    const axis = { stroke: tone("--quiet"), grid: { stroke: tone("--line"), width: 1 }, ticks: { stroke: tone("--line"), width: 1 }, font: "11px system-ui" };
    const accent = tone("--accent");
    const solid = accent.length === 7 ? accent : "#808080";
    const edge = `${solid}80`;
    const made = new uPlot(
      {
        width: Math.max(200, element.clientWidth),
        height: 160,
        ms: 1,
        legend: { show: false },
        cursor: { sync: { key: "metrics" }, points: { show: false }, drag: { x: false, y: false } },
        scales: { x: { time: true } },
        axes: [{ ...axis, size: 30, values: (_, times) => timeWords(times) }, { ...axis, size: 56, values: (_, values) => values.map((value) => (value === null ? "" : figure(value))) }],
        series: [
          {},
          { stroke: edge, width: 1, points: { show: false } },
          { stroke: edge, width: 1, points: { show: false } },
          { stroke: accent, width: 1.4, points: { show: data[0].length < 2, fill: accent } },
        ],
        bands: [{ series: [1, 2], fill: `${solid}40` }],
      },
      data as uPlot.AlignedData,
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: Math.max(200, element.clientWidth), height: 160 }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [isDark, isForced]);
  useEffect(() => plot.current?.setData(data as uPlot.AlignedData), [series]);
  const { least, greatest, last, lastAt, notFinite } = extent(series.buckets);
  const unit = series.unit ? ` ${series.unit}` : "";
  const words = last === undefined ? "no finite value" : `last ${figure(last)}${unit}, least ${figure(least as number)}, greatest ${figure(greatest as number)}`;
  return (
    <figure class="chart">
      <figcaption>
        <strong>
          <Text raw={nameOf(series.name)} />
        </strong>{" "}
        <span class="number" title={lastAt === undefined ? undefined : utc(lastAt)}>
          {words}
        </span>
        {notFinite > 0 && <span class="tone-failed"> {count(notFinite)} NaN or infinite</span>}
      </figcaption>
      <div ref={field} role="img" aria-label={`${nameOf(series.name)}: ${words}`} />
      <p class="quiet small">
        {series.bucketMillis > 0 ? `each point covers ${duration(series.bucketMillis)}` : "each point is one report"}
        {(series.tooLate ?? 0) > 0 && `; ${count(series.tooLate ?? 0)} points came too late for some levels`}
      </p>
    </figure>
  );
}
