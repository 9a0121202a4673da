//! Reading graphs from edge lists, and mixing matrices from text.

use super::{Graph, GraphError};

/// The fields of every line that is not blank or a comment, with the line's number.
fn fields(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    text.lines().enumerate().filter_map(|(k, line)| {
        let content = line.split(['#', '%']).next().unwrap_or_default();
        let fields: Vec<&str> =
            content.split([',', ';', ' ', '\t']).filter(|field| !field.is_empty()).collect();
        (!fields.is_empty()).then_some((k + 1, fields))
    })
}

impl Graph {
    /// Reads an edge list: two agent numbers per line, separated by blanks or a comma, `#` for comments.
    ///
    /// ```
    /// use mile::graph::Graph;
    /// let graph = Graph::parse_edges("# a path\n0 1\n1, 2\n", 3)?;
    /// assert_eq!(graph.neighbours(1), [0, 2]);
    /// # Ok::<(), mile::graph::GraphError>(())
    /// ```
    pub fn parse_edges(text: &str, agents: usize) -> Result<Self, GraphError> {
        let edge = |(line, fields): (usize, Vec<&str>)| match fields[..] {
            [from, to] => ends(line, [from, to], agents),
            _ => Err(bad(line, format!("an edge has two agent numbers, found {} fields", fields.len()))),
        };
        Self::from_edges(agents, fields(text).map(edge).collect::<Result<Vec<_>, _>>()?)
    }
}

fn bad(line: usize, problem: String) -> GraphError {
    GraphError::Text { line, problem }
}

/// The two agents of an edge.
fn ends(line: usize, fields: [&str; 2], agents: usize) -> Result<(usize, usize), GraphError> {
    let number = |field: &str| {
        field.parse::<usize>().map_err(|_| bad(line, format!("'{field}' is not an agent number")))
    };
    let (from, to) = (number(fields[0])?, number(fields[1])?);
    if from >= agents || to >= agents {
        return Err(bad(line, GraphError::NoSuchAgent { from, to, agents }.to_string()));
    }
    Ok((from, to))
}

/// Reads an edge list with weights: two agent numbers and a weight per line.
pub(crate) fn parse_weights(text: &str, agents: usize) -> Result<Vec<(usize, usize, f64)>, GraphError> {
    let edge = |(line, fields): (usize, Vec<&str>)| match fields[..] {
        [from, to, weight] => {
            let (i, j) = ends(line, [from, to], agents)?;
            let weight = weight.parse().map_err(|_| bad(line, format!("'{weight}' is not a number")))?;
            Ok((i, j, weight))
        }
        _ => {
            let found = fields.len();
            Err(bad(line, format!("an edge has two agent numbers and a weight, found {found} fields")))
        }
    };
    fields(text).map(edge).collect()
}

/// Reads a square matrix: one row per line, numbers separated by blanks or commas, `#` for comments.
pub(crate) fn parse_matrix(text: &str, size: usize) -> Result<Vec<Vec<f64>>, GraphError> {
    let mut rows = Vec::new();
    let mut last = 0;
    for (line, fields) in fields(text) {
        let bad = |problem: String| GraphError::Text { line, problem };
        if fields.len() != size {
            return Err(bad(format!("a row has {size} numbers, one for each agent, found {}", fields.len())));
        }
        let number = |field: &&str| match field.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            _ => Err(bad(format!("'{field}' is not a finite number"))),
        };
        rows.push(fields.iter().map(number).collect::<Result<_, _>>()?);
        last = line;
    }
    if rows.len() != size {
        let problem =
            format!("the matrix has {} rows, it needs one for each of the {size} agents", rows.len());
        return Err(GraphError::Text { line: last, problem });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_named_by_its_line() {
        let line_of = |text: &str| match Graph::parse_edges(text, 3).unwrap_err() {
            GraphError::Text { line, .. } => line,
            other => panic!("{other}"),
        };
        assert_eq!(line_of("0 1\n\n1 x\n"), 3);
        assert_eq!(line_of("0 1 2\n"), 1);
        assert_eq!(line_of("# c\n0 1\n2 3\n"), 3);
        let line_of = |text: &str| match parse_weights(text, 3).unwrap_err() {
            GraphError::Text { line, .. } => line,
            other => panic!("{other}"),
        };
        assert_eq!(["0 1 0.5\n1 2\n", "0 1 x\n", "\n0 3 0.5\n"].map(line_of), [2, 1, 2]);
        let line_of = |text: &str| match parse_matrix(text, 2).unwrap_err() {
            GraphError::Text { line, .. } => line,
            other => panic!("{other}"),
        };
        assert_eq!(["1 0\n0 nan\n", "1 0\n", "1\n"].map(line_of), [2, 1, 1]);
    }
}
