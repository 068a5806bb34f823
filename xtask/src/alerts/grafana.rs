//! A dashboard as the JSON that Grafana 10 and later read.
//!
//! Invariant: no `__inputs`: the data source is a variable, so a dashboard that is provisioned from a file works, too.

use std::fmt::Write as _;

use super::boards::{Board, Form, Panel, Variable};

/// The form of the document that Grafana 10.0 wrote; later ones convert it.
const SCHEMA: i64 = 38;
/// The width of a page, in the units of Grafana.
const WIDTH: i64 = 24;

/// A value of JSON; members keep their order.
enum Json {
    Bool(bool),
    Number(i64),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(&'static str, Json)>),
}

use Json::{Bool, List, Map, Number};

fn text(text: &str) -> Json {
    Json::Text(text.to_owned())
}

/// The document of one dashboard.
pub(super) fn document(board: &Board) -> String {
    let mut variables = vec![data_source()];
    variables.extend(board.variables.iter().map(variable));
    let (mut x, mut y, mut row) = (0, 0, 0);
    let mut panels = Vec::new();
    for (id, panel) in (1_i64..).zip(&board.panels) {
        if x + panel.width > WIDTH {
            (x, y, row) = (0, y + row, 0);
        }
        panels.push(drawn(id, panel, x, y));
        x += panel.width;
        row = row.max(panel.form.height());
    }
    let document = Map(vec![
        ("uid", text(board.id)),
        ("title", text(board.title)),
        ("description", text(board.description)),
        ("tags", List(vec![text("trainyard")])),
        ("schemaVersion", Number(SCHEMA)),
        ("version", Number(1)),
        ("editable", Bool(true)),
        ("graphTooltip", Number(1)),
        ("refresh", text("30s")),
        (
            "time",
            Map(vec![("from", text(board.since)), ("to", text("now"))]),
        ),
        ("timezone", text("browser")),
        ("annotations", Map(vec![("list", List(Vec::new()))])),
        ("links", List(Vec::new())),
        ("templating", Map(vec![("list", List(variables))])),
        ("panels", List(panels)),
    ]);
    let mut out = String::new();
    write(&mut out, &document, 0);
    out.push('\n');
    out
}

fn source() -> Json {
    Map(vec![
        ("type", text("prometheus")),
        ("uid", text("${datasource}")),
    ])
}

fn data_source() -> Json {
    Map(vec![
        ("name", text("datasource")),
        ("label", text("Data source")),
        ("type", text("datasource")),
        ("query", text("prometheus")),
        ("refresh", Number(1)),
        ("hide", Number(0)),
    ])
}

fn variable(variable: &Variable) -> Json {
    let mut members = vec![
        ("name", text(variable.name)),
        ("label", text(variable.label)),
        ("type", text("query")),
        ("datasource", source()),
        ("definition", text(variable.query)),
        (
            "query",
            Map(vec![
                ("query", text(variable.query)),
                ("refId", text(variable.name)),
            ]),
        ),
        ("refresh", Number(2)),
        ("sort", Number(1)),
        ("hide", Number(0)),
        ("multi", Bool(variable.all)),
        ("includeAll", Bool(variable.all)),
    ];
    if variable.all {
        members.push(("allValue", text(".*")));
        let current = Map(vec![("text", text("All")), ("value", text("$__all"))]);
        members.push(("current", current));
    }
    Map(members)
}

fn drawn(id: i64, panel: &Panel, x: i64, y: i64) -> Json {
    let place = Map(vec![
        ("h", Number(panel.form.height())),
        ("w", Number(panel.width)),
        ("x", Number(x)),
        ("y", Number(y)),
    ]);
    let targets = panel.queries.iter().zip('A'..='Z').map(|(query, name)| {
        let is_instant = panel.form == Form::Bars || panel.form == Form::Values;
        Map(vec![
            ("refId", text(&name.to_string())),
            ("datasource", source()),
            ("editorMode", text("code")),
            ("expr", text(&query.expression)),
            ("legendFormat", text(query.legend)),
            ("instant", Bool(is_instant)),
            ("range", Bool(!is_instant)),
        ])
    });
    let lines = panel.form == Form::Lines || panel.form == Form::Stack;
    let mut custom = Vec::new();
    if lines {
        let is_stack = panel.form == Form::Stack;
        custom.push(("drawStyle", text("line")));
        custom.push(("fillOpacity", Number(if is_stack { 60 } else { 0 })));
        custom.push(("showPoints", text("never")));
        let mode = if is_stack { "normal" } else { "none" };
        let stacking = Map(vec![("mode", text(mode)), ("group", text("A"))]);
        custom.push(("stacking", stacking));
    }
    let mut defaults = vec![("unit", text(panel.unit)), ("custom", Map(custom))];
    if panel.unit == "percentunit" {
        defaults.push(("min", Number(0)));
        defaults.push(("max", Number(1)));
    } else if lines {
        defaults.push(("min", Number(0)));
    }
    let steps = Map(vec![("color", text("blue"))]);
    let thresholds = Map(vec![
        ("mode", text("absolute")),
        ("steps", List(vec![steps])),
    ]);
    defaults.push(("thresholds", thresholds));
    Map(vec![
        ("id", Number(id)),
        ("type", text(panel.form.name())),
        ("title", text(panel.title)),
        ("description", text(panel.description)),
        ("datasource", source()),
        ("gridPos", place),
        (
            "fieldConfig",
            Map(vec![
                ("defaults", Map(defaults)),
                ("overrides", List(Vec::new())),
            ]),
        ),
        ("options", panel.form.options()),
        ("targets", List(targets.collect())),
    ])
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Values => "stat",
            Self::Bars => "bargauge",
            Self::Lines | Self::Stack => "timeseries",
        }
    }

    fn height(self) -> i64 {
        if self == Self::Values { 4 } else { 8 }
    }

    fn options(self) -> Json {
        let last = || {
            let calculations = List(vec![text("lastNotNull")]);
            Map(vec![
                ("calcs", calculations),
                ("fields", text("")),
                ("values", Bool(false)),
            ])
        };
        match self {
            Self::Values => Map(vec![
                ("reduceOptions", last()),
                ("textMode", text("value_and_name")),
                ("colorMode", text("value")),
                ("graphMode", text("none")),
            ]),
            Self::Bars => Map(vec![
                ("reduceOptions", last()),
                ("orientation", text("horizontal")),
                ("displayMode", text("basic")),
            ]),
            Self::Lines | Self::Stack => Map(vec![
                (
                    "legend",
                    Map(vec![
                        ("displayMode", text("list")),
                        ("placement", text("bottom")),
                        ("showLegend", Bool(true)),
                        ("calcs", List(Vec::new())),
                    ]),
                ),
                (
                    "tooltip",
                    Map(vec![("mode", text("multi")), ("sort", text("desc"))]),
                ),
            ]),
        }
    }
}

fn write(out: &mut String, value: &Json, indent: usize) {
    match value {
        Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Number(value) => out.push_str(&value.to_string()),
        Json::Text(text) => string(out, text),
        List(items) => {
            let items = items.iter().map(|item| (None, item));
            members(out, ('[', ']'), items, indent);
        }
        Map(items) => {
            let items = items.iter().map(|(name, item)| (Some(*name), item));
            members(out, ('{', '}'), items, indent);
        }
    }
}

fn members<'a>(
    out: &mut String,
    (open, close): (char, char),
    items: impl ExactSizeIterator<Item = (Option<&'a str>, &'a Json)>,
    indent: usize,
) {
    out.push(open);
    let count = items.len();
    for (at, (name, item)) in items.enumerate() {
        out.push_str(if at == 0 { "\n" } else { ",\n" });
        out.push_str(&"  ".repeat(indent + 1));
        if let Some(name) = name {
            string(out, name);
            out.push_str(": ");
        }
        write(out, item, indent + 1);
    }
    if count > 0 {
        out.push('\n');
        out.push_str(&"  ".repeat(indent));
    }
    out.push(close);
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a String cannot fail");
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_escaped_and_indented() {
        let value = Map(vec![
            ("a", text("\"\\\n\u{1}")),
            ("b", List(vec![Number(1), Bool(true)])),
            ("c", List(Vec::new())),
        ]);
        let mut out = String::new();
        write(&mut out, &value, 0);
        let want = "{\n  \"a\": \"\\\"\\\\\\n\\u0001\",\n  \"b\": [\n    1,\n    true\n  ],\n  \"c\": []\n}";
        assert_eq!(out, want);
    }
}
