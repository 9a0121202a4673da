//! Fields of a CSV file.

/// A number; none if it is missing.
pub(super) fn number(field: &str) -> Result<Option<f64>, String> {
    let parse = |text: &str| text.parse::<f64>();
    match parse(field).or_else(|_| parse(field.trim())) {
        Ok(value) if value.is_finite() => Ok(Some(value)),
        Ok(value) if value.is_nan() => Ok(None),
        Ok(_) => Err(format!("'{field}' is not a finite number")),
        Err(_) if is_missing_word(field.trim()) => Ok(None),
        Err(_) if parse(&field.trim().replace(',', ".")).is_ok() => {
            Err(format!("'{field}' has a comma; write numbers with a decimal point, as in 1.5"))
        }
        Err(_) => Err(format!("'{field}' is not a number")),
    }
}

/// Whether a field of a table says that its value is missing.
pub fn is_missing_word(field: &str) -> bool {
    field.is_empty() || ["?", "NA", "N/A", "NaN", "nan", "null", "NULL"].contains(&field)
}
