//! The dashboard and the alerts for Prometheus in the documentation, on the metrics that agents have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mile_net::status::Status;
use serde_json::json;

const ALERTS: &str = "alerts.yml";
const DASHBOARD: &str = "grafana.json";

/// A file of the documentation, which is not part of this crate.
fn read(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/deploy");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The metrics of an agent with these neighbours, each of which is connected or not.
fn metrics(agent: usize, neighbours: &[(usize, bool)]) -> String {
    let traffic = json!({ "payload": 1, "gossip": 2, "protocol": 3 });
    let neighbour = |(id, linked): &(usize, bool)| {
        json!({
            "id": id, "linked": linked, "since_s": 1.0, "last_heard_s": 0.5, "exchange": 7, "lag": 0, "durable_round": 6,
            "sent": traffic, "received": traffic, "waiting": "message", "waiting_s": 2.0, "refusal": null, "trouble": null,
            "skipped": 0, "distance": 2.5, "relayed": true,
        })
    };
    let status: Status = serde_json::from_value(json!({
        "agent": agent, "run": "a run", "incarnation": 1, "job": 0, "round": 7, "rounds": 9, "exchange": 7, "since_start_s": 3.0,
        "activity": "waiting", "activity_s": 1.0, "neighbours": neighbours.iter().map(neighbour).collect::<Vec<_>>(),
        "estimate": { "loss": 1.0, "consensus_error": 0.5, "grad_norm_sq": 0.25 },
        "refused": { "strangers": 0, "flooded": 0, "broken": 0, "faults": 0 }, "saved_round": 6, "diverged": null,
        "own_loss": 1.5, "resident_bytes": 4096,
    }))
    .unwrap();
    status.prometheus()
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("mile_")).collect()
}

#[test]
fn a_neighbours_distance_and_its_way_are_metrics() {
    let text = metrics(3, &[(1, true)]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.contains(&r#"mile_distance{agent="3",neighbour="1"} 2.5"#), "{text}");
    assert!(lines.contains(&r#"mile_relayed{agent="3",neighbour="1"} 1"#), "{text}");
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_agents_have() {
    let text = metrics(0, &[(1, true)]);
    let known = names(&text);
    let (alerts, dashboard) = (read(ALERTS), read(DASHBOARD));
    for file in [&alerts, &dashboard] {
        let named = names(file);
        let unknown: Vec<&&str> = named.difference(&known).collect();
        assert!(!named.is_empty() && unknown.is_empty(), "{unknown:?}");
    }
    let of_a_run =
        ["agent_info", "rounds", "spent_seconds", "own_loss", "resident_bytes", "relayed", "distance"];
    for name in of_a_run.map(|name| format!("mile_{name}")) {
        assert!(names(&dashboard).contains(&*name), "{name}");
    }
}

/// The neighbours for which the rule MileAgentDown holds, on the metrics of these agents: those that answer.
fn down(agents: &[String]) -> Vec<String> {
    let alerts = read(ALERTS);
    let rule = alerts.split("- alert: ").find(|rule| rule.starts_with("MileAgentDown")).unwrap();
    let expression = rule.lines().find_map(|line| line.trim().strip_prefix("expr: ")).unwrap();
    fn within(text: &str) -> (&str, &str) {
        text.split_once('(').unwrap().1.split_once(')').unwrap()
    }
    let (label, rest) = within(expression.strip_prefix("max by ").unwrap());
    let (metric, limit) = within(rest);
    let limit: f64 = limit.trim().strip_prefix("==").unwrap().trim().parse().unwrap();
    let mut most: BTreeMap<String, f64> = BTreeMap::new();
    let samples =
        agents.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with(&format!("{metric}{{")));
    for (labels, value) in samples.map(|line| line.rsplit_once(' ').unwrap()) {
        let key = labels.split_once(&format!("{label}=\"")).unwrap().1.split_once('"').unwrap().0.to_owned();
        let value: f64 = value.parse().unwrap();
        most.entry(key).and_modify(|most| *most = most.max(value)).or_insert(value);
    }
    most.into_iter().filter(|(_, most)| *most == limit).map(|(key, _)| key).collect()
}

#[test]
fn an_agent_is_down_if_those_that_need_it_do_not_reach_it() {
    let all = |linked: bool| [metrics(0, &[(1, true), (2, linked)]), metrics(1, &[(0, true), (2, linked)])];
    assert_eq!(down(&all(true)), [""; 0]);
    assert_eq!(down(&all(false)), ["2"], "nobody reaches it");
    let [one, _] = all(true);
    assert_eq!(down(&[one, metrics(1, &[(0, true), (2, false)])]), [""; 0], "one still does");
    assert_eq!(
        down(&[metrics(0, &[]), metrics(1, &[])]),
        [""; 0],
        "all have finished, and nobody needs anybody"
    );
}
