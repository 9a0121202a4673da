//! Coefficients in the units of the data, and their standard errors, against a fit of the pooled rows by hand.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

use mile_lab::Lab;
use mile_lab::objectives::Statistics;

const EXPERIMENT: &str = r#"
rounds = 20000
eval_every = 50
stop = { grad_norm = 1e-12, consensus = 1e-24 }
[network]
agents = 3
topology = "complete"
[problem]
kind = "table"
data = "all.csv"
target = "y"
standardise = true
categorical = ["colour"]
by = "clinic"
[[algorithm]]
name = "ed"
step_size = 0.1
"#;

/// A row of the file.
struct Row {
    clinic: usize,
    age: f64,
    dose: f64,
    colour: &'static str,
    weight: f64,
    exposure: f64,
    noise: f64,
}

const COLOURS: [&str; 3] = ["blue", "green", "red"];

fn rows() -> Vec<Row> {
    let value = |k: usize| ((k * k * 7919 + k * 104_729) % 10_007) as f64 / 5_003.0 - 1.0;
    let row = |k: usize| Row {
        clinic: k * 5 % 17 % 3,
        age: 50.0 + 12.0 * value(7 * k + 1),
        dose: (1.5 + 1.5 * value(13 * k + 4)).round() / 2.0,
        colour: COLOURS[k * 11 % 7 % 3],
        weight: 0.5 + (k % 4) as f64,
        exposure: 1.0 + (k * 3 % 5) as f64 / 4.0,
        noise: value(29 * k + 2),
    };
    (0..90).map(row).collect()
}

/// The experiment with these keys of `[problem]`.
fn experiment(home: &Path, keys: &str) -> String {
    let data = home.join("all.csv").display().to_string();
    EXPERIMENT.replace("[problem]", &format!("[problem]\n{keys}")).replace("all.csv", &data)
}

/// Runs the experiment with these keys of `[problem]` on rows with these targets; returns the cells of its coefficients by name and column.
fn coefficients(home: &Path, keys: &str, target: fn(&Row) -> String) -> HashMap<(String, String), f64> {
    let mut text = "clinic,age,dose,colour,v,t,y\n".to_owned();
    for row in rows() {
        let Row { clinic, age, dose, colour, weight, exposure, .. } = row;
        writeln!(text, "{clinic},{age},{dose},{colour},{weight},{exposure},{}", target(&row)).unwrap();
    }
    std::fs::write(home.join("all.csv"), text).unwrap();
    let results = Lab::default().quiet().run(&experiment(home, keys), home.join("run")).unwrap();
    let last = &results.outcomes[0].last;
    assert!(last.grad_norm_sq.unwrap() <= 1e-24, "{last:?}");
    let mut reader = csv::Reader::from_path(home.join("run/coefficients.csv")).unwrap();
    let header = reader.headers().unwrap().clone();
    let mut found = HashMap::new();
    for record in reader.records().map(Result::unwrap) {
        for (column, cell) in header.iter().zip(&record).skip(1) {
            let value = if cell.is_empty() { f64::NAN } else { cell.parse().unwrap() };
            found.insert((record[0].to_owned(), column.strip_prefix("ed ").unwrap().to_owned()), value);
        }
    }
    found
}

const NAMES: [&str; 5] = ["age", "dose", "colour=green", "colour=red", "intercept"];

/// The columns as they are in the file, with 0 and 1 for the colours that are not the first, and 1.
fn features(row: &Row) -> [f64; 5] {
    let is = |colour: &str| f64::from(u8::from(row.colour == colour));
    [row.age, row.dose, is("green"), is("red"), 1.0]
}

/// The inverse of a matrix, by Gauss and Jordan with pivots.
fn inverse(mut a: [[f64; 5]; 5]) -> [[f64; 5]; 5] {
    let mut b: [[f64; 5]; 5] = std::array::from_fn(|i| std::array::from_fn(|j| f64::from(u8::from(i == j))));
    for k in 0..5 {
        let pivot = (k..5).max_by(|i, j| a[*i][k].abs().total_cmp(&a[*j][k].abs())).unwrap();
        a.swap(k, pivot);
        b.swap(k, pivot);
        let scale = a[k][k];
        for j in 0..5 {
            a[k][j] /= scale;
            b[k][j] /= scale;
        }
        for i in (0..5).filter(|i| *i != k) {
            let factor = a[i][k];
            for j in 0..5 {
                a[i][j] -= factor * a[k][j];
                b[i][j] -= factor * b[k][j];
            }
        }
    }
    b
}

/// Newton's method on all rows, from the first and second derivative of a row's loss in its product: coefficients, inverse information, and
/// the product of each row.
fn newton(
    derivatives: impl Fn(&Row, f64) -> (f64, f64),
    start: [f64; 5],
) -> ([f64; 5], [[f64; 5]; 5], Vec<f64>) {
    let (rows, mut x) = (rows(), start);
    let product = |x: &[f64; 5], row: &Row| features(row).iter().zip(x).map(|(a, x)| a * x).sum::<f64>();
    let mut inverted = [[0.0; 5]; 5];
    for _ in 0..50 {
        let (mut gradient, mut information) = ([0.0; 5], [[0.0; 5]; 5]);
        for row in &rows {
            let (a, (slope, curvature)) = (features(row), derivatives(row, product(&x, row)));
            for i in 0..5 {
                gradient[i] += slope * a[i];
                (0..5).for_each(|j| information[i][j] += curvature * a[i] * a[j]);
            }
        }
        inverted = inverse(information);
        for i in 0..5 {
            x[i] -= (0..5).map(|j| inverted[i][j] * gradient[j]).sum::<f64>();
        }
    }
    (x, inverted, rows.iter().map(|row| product(&x, row)).collect())
}

#[track_caller]
fn near(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() < 1e-7 * (1e-3 + expected.abs()), "{what}: {found} {expected}");
}

fn count(row: &Row) -> f64 {
    (row.exposure * (1.0 + 0.3 * row.dose + row.noise)).abs().round()
}

#[test]
fn poisson_with_weights_and_exposure_is_the_pooled_fit_of_the_columns_as_they_are() {
    let home = tempfile::tempdir().unwrap();
    let keys = "loss = 'poisson'\nintercept = true\nweights = 'v'\nexposure = 't'\n";
    let found = coefficients(home.path(), keys, |row| count(row).to_string());
    let derivatives = |row: &Row, p: f64| {
        let mean = row.exposure * p.exp();
        (row.weight * (mean - count(row)), row.weight * mean)
    };
    let (x, covariance, _) = newton(derivatives, [0.0; 5]);
    for (k, name) in NAMES.into_iter().enumerate() {
        let of = |column: &str| found[&(name.to_owned(), column.to_owned())];
        near(of("original"), x[k], name);
        let error = covariance[k][k].sqrt();
        near(of("std_error"), error, name);
        near(of("lower"), x[k] - 1.959963985 * error, name);
        near(of("upper"), x[k] + 1.959963985 * error, name);
    }
    let statistics = Statistics::read(&home.path().join("run/statistics.json")).unwrap();
    near(statistics.weight.unwrap(), rows().iter().map(|row| row.weight).sum(), "the sum of the weights");
    let age = found[&("age".to_owned(), "average".to_owned())];
    near(age / statistics.columns[0].deviation(), x[0], "the coefficient of the standardised column");
    let page = std::fs::read_to_string(home.path().join("run/report.html")).unwrap();
    let table = page.split("<h2>Coefficients</h2>").nth(1).unwrap().split("<h2>").next().unwrap();
    assert!(NAMES.iter().all(|name| table.contains(name)), "{table}");
}

#[test]
fn least_squares_has_intervals_of_students_distribution() {
    let home = tempfile::tempdir().unwrap();
    let target = |row: &Row| (3.0 * row.dose + row.noise).to_string();
    let found = coefficients(
        home.path(),
        "loss = 'least-squares'\nintercept = true\nweights = 'rows'\nexclude = ['v', 't']\n",
        target,
    );
    let residual = |row: &Row, p: f64| p - (3.0 * row.dose + row.noise);
    let (x, inverted, products) = newton(|row, p| (residual(row, p), 1.0), [0.0; 5]);
    let squares: f64 = rows().iter().zip(products).map(|(row, p)| residual(row, p).powi(2)).sum();
    for (k, name) in NAMES.into_iter().enumerate() {
        let of = |column: &str| found[&(name.to_owned(), column.to_owned())];
        let error = (squares / 85.0 * inverted[k][k]).sqrt();
        near(of("original"), x[k], name);
        near(of("std_error"), error, name);
        // The 97.5% quantile of Student's distribution with 85 degrees of freedom.
        let half = of("upper") - of("original");
        assert!((half / error - 1.988268).abs() < 1e-5, "{}", half / error);
        near(of("original") - of("lower"), half, name);
    }
}

#[test]
fn a_model_without_an_intercept_has_one_in_the_units_of_the_data() {
    let home = tempfile::tempdir().unwrap();
    let target = |row: &Row| if row.noise + row.dose > 0.8 { "yes" } else { "no" }.to_owned();
    let found = coefficients(home.path(), "loss = 'logistic'\nexclude = ['v', 't']\n", target);
    let of = |name: &str, column: &str| found[&(name.to_owned(), column.to_owned())];
    assert!(of("intercept", "average").is_nan() && of("intercept", "std_error") > 0.0);
    let statistics = Statistics::read(&home.path().join("run/statistics.json")).unwrap();
    for row in rows() {
        let [age, dose] = [0, 1].map(|k| &statistics.columns[k]);
        let colour = format!("colour={}", row.colour);
        let standardised = of("age", "average") * (row.age - age.mean) / age.deviation()
            + of("dose", "average") * (row.dose - dose.mean) / dose.deviation()
            + of(&colour, "average");
        let original = of("age", "original") * row.age
            + of("dose", "original") * row.dose
            + of(&colour, "original")
            + of("intercept", "original");
        assert!((standardised - original).abs() < 1e-9, "{standardised} {original}");
    }
}

#[test]
fn robust_losses_and_lassos_have_coefficients_without_standard_errors() {
    for keys in ["loss = 'huber'\ndelta = 1.0\n", "loss = 'least-squares'\nl1 = 0.1\n"] {
        let home = tempfile::tempdir().unwrap();
        let found =
            coefficients(home.path(), &format!("{keys}intercept = true\nexclude = ['v', 't']\n"), |row| {
                row.noise.to_string()
            });
        assert!(found.keys().any(|(_, column)| column == "original"));
        assert!(!found.keys().any(|(_, column)| column == "std_error"), "{keys}");
    }
}

#[test]
fn columns_with_two_uses_and_offsets_without_an_effect_are_refused_by_name() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("all.csv"), "clinic,a,v,y\n0,1,1,2\n1,2,-1,1\n2,3,2,0\n").unwrap();
    for (keys, names) in [
        ("loss = 'poisson'\nweights = 'w'", &["weights", "'w'"][..]),
        ("loss = 'poisson'\nweights = 'v'", &["weight", "-1"]),
        ("loss = 'poisson'\nexposure = 'v'", &["line 3", "'v'", "-1"]),
        ("loss = 'poisson'\nexposure = 'v'\noffset = 'a'", &["problem.exposure"]),
        ("loss = 'poisson'\nweights = 'a'\noffset = 'a'", &["problem.weights", "problem.offset"]),
        ("loss = 'poisson'\ncolumns = ['a', 'v']\noffset = 'v'", &["problem.offset", "problem.columns"]),
        ("loss = 'least-squares'\nexposure = 'a'", &["problem.exposure", "poisson"]),
        ("loss = 'softmax'\noffset = 'a'", &["problem.offset", "softmax"]),
    ] {
        let text = experiment(home.path(), keys).replace("categorical = [\"colour\"]\n", "");
        let found = Lab::default().quiet().run(&text, home.path().join("run"));
        let message = found.map(drop).unwrap_err().to_string();
        assert!(names.iter().all(|name| message.contains(name)), "{keys}: {message}");
    }
}
