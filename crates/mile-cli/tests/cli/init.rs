//! `mile init`: every file that it writes runs unchanged.

use std::path::Path;
use std::process::{Command, Output};

pub(crate) fn mile(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mile"));
    command.env("MILE_HOME", folder.join("home")).env_remove("MILE_DATA");
    command.current_dir(folder).args(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a file as `mile init` wrote it.
fn run(folder: &Path, file: &str) {
    run_with(folder, file, &[]);
}

pub(crate) fn run_with(folder: &Path, file: &str, options: &[&str]) {
    let output = mile(folder, &[&["run", file], options].concat());
    let table = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let ended = table.contains("converged") || table.contains("last round");
    assert!(!table.contains("diverged") && ended, "{table}");
}

fn write(folder: &Path, name: &str, header: &str, row: impl Fn(usize) -> String) {
    let rows: String = (0..60).map(|k| row(k) + "\n").collect();
    std::fs::write(folder.join(name), format!("{header}\n{rows}")).unwrap();
}

#[test]
fn files_without_data_run_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    for kind in ["quadratic", "images", "agent"] {
        let output = mile(folder.path(), &["init", kind]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let command = if kind == "agent" { "swarm" } else { "run" };
        assert!(text(&output.stdout).ends_with(&format!("mile {command} {kind}.toml\n")));
        // Some rounds of a neural network are enough.
        let options: &[&str] = if kind == "images" { &["--set", "rounds=2"] } else { &[] };
        run_with(folder.path(), &format!("{kind}.toml"), options);
    }
    assert!(text(&mile(folder.path(), &["init", "-o", "x.toml"]).stdout).contains("x.toml"));
    let same = std::fs::read(folder.path().join("x.toml")).unwrap();
    assert_eq!(same, std::fs::read(folder.path().join("images.toml")).unwrap());
}

#[test]
fn tables_run_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let wave = |k: usize| (k as f64 * 0.7).sin() * 30.0;
    write(folder.path(), "price.csv", "size,age,price", |k| {
        format!("{},{},{}", wave(k), k, 3.0 * wave(k) + 0.5)
    });
    write(folder.path(), "ill.csv", "site,x,ill", |k| {
        format!(
            "{},{},{}",
            ["north", "east", "south"][k % 3],
            wave(k),
            if wave(k) > 3.0 { "yes" } else { "no" }
        )
    });
    write(folder.path(), "kind.csv", "colour,x,kind", |k| {
        let (colour, kind) = (["red", "green"][k % 2], ["a", "b", "c"][(wave(k) / 21.0 + 1.5) as usize]);
        format!("{colour},{},{kind}", wave(k))
    });
    for (name, loss, agents) in
        [("price", "least-squares", 5), ("ill", "logistic", 3), ("kind", "softmax", 5)]
    {
        let output = mile(folder.path(), &["init", "--data", &format!("{name}.csv")]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let file = format!("{name}.toml");
        let table: toml::Table = std::fs::read_to_string(folder.path().join(&file)).unwrap().parse().unwrap();
        assert_eq!(table["problem"]["loss"].as_str(), Some(loss));
        assert_eq!(table["network"]["agents"].as_integer(), Some(agents));
        run(folder.path(), &file);
    }
    // From another folder, to another folder, with another target.
    std::fs::create_dir(folder.path().join("there")).unwrap();
    let output = mile(
        folder.path(),
        &["init", "table", "--data", "price.csv", "--target", "size", "-o", "there/e.toml"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    run(folder.path(), "there/e.toml");
}

/// Tables as people have them, by name.
fn odd_tables() -> Vec<(&'static str, Vec<u8>)> {
    let table = |header: &str, row: &dyn Fn(usize) -> String| -> Vec<u8> {
        let rows: String = (0..60).map(|k| row(k) + "\n").collect();
        format!("{header}\n{rows}").into_bytes()
    };
    let wave = |k: usize| (k as f64 * 0.7).sin() * 30.0;
    let comma = |k: usize| format!("{:.2}", wave(k)).replace('.', ",");
    let odd = |k: usize, word: &str| if k == 17 { word.to_owned() } else { wave(k).to_string() };
    let utf16 = |text: &str| -> Vec<u8> {
        format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect()
    };
    let words = table("größe,y", &|k| format!("{},{}", ["große", "kleine"][k % 2], wave(k)));
    let latin = String::from_utf8(words.clone()).unwrap().chars().map(|c| c as u8).collect();
    vec![
        ("thousands", table("x,y", &|k| format!("{},{k}.5", odd(k, "\"1,234.5\"")))),
        ("infinite", table("x,y", &|k| format!("{},{}", odd(k, "inf"), odd(k, "-inf")))),
        ("nul", table("x,z,y", &|k| format!("{},{},{k}.5", odd(k, "\0"), odd(k, "1\0")))),
        ("comma", table("x;z;y", &|k| format!("{};{};{}", comma(k), k, comma(k + 1)))),
        ("quoted-comma", table("x,y", &|k| format!("\"{}\",\"{}\"", comma(k), comma(k + 3)))),
        (
            "dates",
            table("d,t,s,y", &|k| {
                format!("2026-01-{:02},{:02}:30,{}.3.2026,{}", k % 28 + 1, k % 24, k % 28 + 1, wave(k))
            }),
        ),
        ("stamps", table("d,y", &|k| format!("2026-01-{:02}T10:00:00+02:00,{}", k % 28 + 1, k % 2))),
        (
            "booleans",
            table("a,b,y", &|k| {
                format!("{},{},{}", ["Yes", "no"][k % 2], ["TRUE", "false", ""][k % 3], wave(k) > 0.0)
            }),
        ),
        ("percent", table("p;q;y", &|k| format!("{k}%;{}%;{}", comma(k), wave(k)))),
        (
            "missing-words",
            table("a,c,y", &|k| {
                format!("{},{},{}", odd(k, "n.a."), ["u", "", "-"][k % 3], odd(k, "unknown"))
            }),
        ),
        (
            "class-gaps",
            table("a,y", &|k| {
                format!("{k},{}", ["0", "1", "", "none"][if k < 50 { k % 2 } else { 2 + k % 2 }])
            }),
        ),
        (
            "class-odd",
            table("a,y", &|k| format!("{k},{}", if k == 9 { "oops".into() } else { (k % 2).to_string() })),
        ),
        (
            "few-values",
            table("a,b,y", &|k| {
                format!("{},{},{}", if k == 3 { "1" } else { "" }, if k < 12 { "7" } else { "" }, wave(k))
            }),
        ),
        ("constant", table("a,b,c,y", &|k| format!("1,x,,{}", wave(k)))),
        ("all-constant", table("a,y", &|k| format!("1,{}", wave(k)))),
        ("index", table(",,id,x,y", &|k| format!("{k},{k},{k},{},{}", wave(k), wave(k + 1)))),
        ("huge", table("a,b,y", &|k| format!("{k}e300,{}e15,{}", wave(k), wave(k)))),
        ("many-texts", table("a,b,y", &|k| format!("name {k},{},{}", wave(k), k % 3))),
        ("counts", table("age,exposure,y", &|k| format!("{k},0.{},{}", k % 9 + 1, k % 4))),
        ("numbered-agents", table("client_id,x,y", &|k| format!("{},{k},{}", k % 7, wave(k)))),
        (
            "comments",
            [
                b"# made by a program, by hand\n".to_vec(),
                table("x,y", &|k| format!("{}{k},{}", if k == 5 { "#\n" } else { "" }, wave(k))),
            ]
            .concat(),
        ),
        ("hashes", table("x,y", &|k| format!("{}{},{}", if k % 2 == 0 { "#" } else { "" }, k % 5, wave(k)))),
        (
            "names",
            table("\"a \"\"b\"\"\",c.d,@NAME@,\"e\nf\",#g,y", &|k| {
                format!("{k},{},{},{},\"{}\",{}", wave(k), k * k, k % 3, comma(k), wave(k))
            }),
        ),
        ("crlf", table("x,y\r", &|k| format!("{k},{}\r", wave(k)))),
        ("tabs", table("x\ty z\ty", &|k| format!("{k}\t{}\t{}", ["a b", "c"][k % 2], wave(k)))),
        ("utf16", utf16(&String::from_utf8(words.clone()).unwrap())),
        ("latin1", latin),
        ("marked", [b"\xef\xbb\xbf".to_vec(), words].concat()),
        ("one-row", b"x,y\n1,2\n".to_vec()),
        ("two-rows", b"x,y\n1,2\n3,4.5\n".to_vec()),
        ("three-rows", b"site,x,y\na,1,2\nb,,3.5\na,7,1\n".to_vec()),
        ("seven-rows", b"x,c,y\n1,u,a\n2,v,b\n,u,a\n4,,b\n5,u,a\n6,v,b\n7,u,a\n".to_vec()),
        (
            "small-agents",
            table("site,x,y", &|k| format!("{},{},{}", if k < 2 { "tiny" } else { "large" }, wave(k), k % 2)),
        ),
        ("rare-class", table("x,y", &|k| format!("{},{}", wave(k), if k == 30 { "rare" } else { "usual" }))),
        ("space", table("x , c ,y", &|k| format!(" {k} , {} , {} ", ["u", "v "][k % 2], wave(k)))),
    ]
}

#[test]
fn what_is_written_for_odd_tables_runs_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in odd_tables() {
        std::fs::write(folder.path().join(format!("{name}.csv")), bytes).unwrap();
        let output = mile(folder.path(), &["init", "--data", &format!("{name}.csv")]);
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let told = text(&output.stdout);
        assert!(
            told.contains("rows") && told.contains("target: y") && told.contains("agents: "),
            "{name}: {told}"
        );
        let file = std::fs::read_to_string(folder.path().join(format!("{name}.toml"))).unwrap();
        let output = mile(folder.path(), &["run", &format!("{name}.toml"), "--set", "rounds=5"]);
        let said = format!("{name}: {}{}\n{told}\n{file}", text(&output.stderr), text(&output.stdout));
        assert!(output.status.success() && !said.contains("diverged"), "{said}");
    }
}

#[test]
fn a_question_stops_the_run_until_it_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let wave = |k: usize| (k as f64 * 0.7).sin();
    write(folder.path(), "d.csv", "price;sold;y", |k| {
        format!("{},234;{}/4/2026;{}", k + 1, k % 12 + 1, wave(k))
    });
    let output = mile(folder.path(), &["init", "--data", "d.csv"]);
    assert_eq!(text(&output.stdout).matches("question: ").count(), 2, "{}", text(&output.stdout));
    let file = folder.path().join("d.toml");
    let written = std::fs::read_to_string(&file).unwrap();
    let output = mile(folder.path(), &["run", "d.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("problem.formats.price: "), "{}", text(&output.stderr));
    for (price, sold) in [("thousands", "date-day-first"), ("decimal-comma", "date-month-first")] {
        let answered = written.replace("price = \"?\"", &format!("price = \"{price}\""));
        let answered = answered.replace("sold = \"?\"", &format!("sold = \"{sold}\""));
        std::fs::write(&file, answered).unwrap();
        run_with(folder.path(), "d.toml", &["--set", "rounds=5"]);
    }
}

#[test]
fn rows_that_are_left_out_are_counted_and_said() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "d.csv", "x,y", |k| {
        format!("{},{}", if k < 7 { "NA".into() } else { k.to_string() }, k % 5)
    });
    std::fs::write(
        folder.path().join("e.toml"),
        format!("{}\nmissing = 'drop'\ncomment = '#'", experiment("d.csv")),
    )
    .unwrap();
    let data = std::fs::read_to_string(folder.path().join("d.csv")).unwrap();
    std::fs::write(folder.path().join("d.csv"), data.replace("\n59,", "\n#59,")).unwrap();
    let output = mile(folder.path(), &["run", "e.toml"]);
    let said = text(&output.stderr) + &text(&output.stdout);
    assert!(said.contains("7 rows") && said.contains("52") && said.contains("1 line "), "{said}");
}

#[test]
fn too_few_rows_to_hold_out_or_to_train_on_are_named() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "d.csv", "x,y", |k| format!("{k},{}", k % 5));
    let run = |test: f64| {
        std::fs::write(folder.path().join("e.toml"), format!("{}\ntest = {test}", experiment("d.csv")))
            .unwrap();
        let output = mile(folder.path(), &["run", "e.toml"]);
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = run(0.001);
    assert!(code == Some(0) && said.contains("test holds out"), "{said}");
    let (code, said) = run(0.02);
    assert!(code == Some(0) && !said.contains("test holds out"), "{said}");
    // One row of sixty is left for two agents.
    let (code, said) = run(0.99);
    assert!(code == Some(2) && said.contains("network.agents: ") && said.contains("59"), "{said}");
}

/// What the page on methods advises in the row of its first table that begins with these words: a method, and keys with their values.
fn advised(words: &str) -> (String, toml::Table) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/methods.md");
    let page = std::fs::read_to_string(page).unwrap();
    let row = page.lines().find_map(|line| line.strip_prefix(&format!("| {words}"))).unwrap();
    let quoted: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
    let method = quoted.iter().find(|text| !text.contains([' ', '.'])).unwrap();
    let keys = quoted.iter().filter_map(|text| text.parse::<toml::Table>().ok());
    ((*method).to_owned(), keys.flatten().collect())
}

#[test]
fn methods_are_those_that_the_documentation_advises() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "t.csv", "a,b,y", |k| format!("{k},{},{}", k * k % 17, (k * 7 % 13) as f64 / 2.0));
    for (words, arguments, expected) in [
        ("exact gradients: a table", &["--data", "t.csv"][..], &["batch", "xi", "step_size"][..]),
        ("a neural network", &["images"], &["momentum", "gamma"]),
    ] {
        let (method, keys) = advised(words);
        assert_eq!(keys.keys().map(String::as_str).collect::<Vec<_>>(), expected, "{words}");
        let output = mile(folder.path(), &[&["init"], arguments, &["-o", "written.toml"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let written = std::fs::read_to_string(folder.path().join("written.toml")).unwrap();
        std::fs::remove_file(folder.path().join("written.toml")).unwrap();
        let written: toml::Table = written.parse().unwrap();
        let algorithm = written["algorithm"][0].as_table().unwrap();
        assert_eq!(algorithm["name"].as_str(), Some(&*method), "{words}");
        for (key, value) in &keys {
            let found = algorithm.get(key).or_else(|| written["problem"].get(key)).unwrap();
            let number = |value: &toml::Value| value.as_float().or(value.as_integer().map(|n| n as f64));
            assert!(
                found == value || number(found).is_some_and(|n| Some(n) == number(value)),
                "{words}: {key} = {found}"
            );
        }
        let others = written["algorithm"].as_array().unwrap().iter().skip(1);
        assert_eq!(others.map(|other| other["name"].as_str().unwrap()).collect::<Vec<_>>(), ["local-dsgd"]);
    }
}

/// A small experiment on a file, which ends in its section `[problem]`.
fn experiment(data: &str) -> String {
    format!(
        "rounds = 3\n[network]\nagents = 2\n[[algorithm]]\nname = 'mile'\nstep_size = 0.01\n\
         [problem]\nkind = 'table'\ndata = '{data}'\ntarget = 'y'\nloss = 'least-squares'\n"
    )
}

#[test]
fn nothing_is_overwritten_and_mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("quadratic.toml"), "mine").unwrap();
    write(folder.path(), "d.csv", "x,y", |k| format!("{k},{k}"));
    let cases: [(&[&str], &str); 6] = [
        (&["quadratic"], "quadratic.toml: "),
        (&["table"], "--data: "),
        (&["images", "--data", "d.csv"], "--data: "),
        (&["--data", "none.csv"], "none.csv"),
        (&["--data", "d.csv", "--target", "z"], "z"),
        (&["arrays", "--data", "d.csv", "--target", "y"], "--target: "),
    ];
    for (arguments, expected) in cases {
        let output = mile(folder.path(), &[&["init"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("quadratic.toml")).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}
