//! Whether an MPI library accepts messages in GPU memory, judging by what it reports.

use mile::agents::Failure;

/// Overrides the library's answer: 0 or 1.
pub(crate) const TOLD: &str = "MILE_CUDA_AWARE_MPI";

/// What an MPI library reports about itself.
pub(crate) struct Library {
    /// Its name and version.
    pub(crate) version: String,
    /// Whether it was built for CUDA, if it can be asked.
    pub(crate) is_built_for_cuda: Option<bool>,
    /// Whether that is switched on, if it can be asked: Open MPI can be built for CUDA and started without it.
    pub(crate) is_switched_on: Option<bool>,
}

/// Whether the library accepts them; `variable` reads an environment variable.
pub(crate) fn is_taken(
    library: &Library,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<bool, Failure> {
    let is_one = |name: &str| variable(name).is_some_and(|text| text.trim() == "1");
    match variable(TOLD).as_deref().map(str::trim) {
        None | Some("") => {}
        Some("0") => return Ok(false),
        Some("1") => return Ok(true),
        Some(other) => return Err(format!("{TOLD} is \"{other}\": use 0 or 1, or leave it out").into()),
    }
    let version = library.version.to_lowercase();
    let is_built = library.is_built_for_cuda == Some(true);
    Ok(match () {
        // The library ends the process if this is set and it was not linked for it.
        () if version.contains("cray mpich") => is_one("MPICH_GPU_SUPPORT_ENABLED"),
        () if version.contains("mvapich2") => is_built && is_one("MV2_USE_CUDA"),
        () => is_built && library.is_switched_on != Some(false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(version: &str, is_built_for_cuda: Option<bool>, is_switched_on: Option<bool>) -> Library {
        Library { version: version.into(), is_built_for_cuda, is_switched_on }
    }

    #[test]
    fn a_library_is_believed_unless_the_user_says_otherwise() {
        let nothing = |_: &str| None;
        let open = |built, on| library("Open MPI v4.1.6, package: x", Some(built), on);
        assert!(is_taken(&open(true, Some(true)), nothing).unwrap());
        assert!(is_taken(&open(true, None), nothing).unwrap());
        assert!(!is_taken(&open(true, Some(false)), nothing).unwrap());
        assert!(!is_taken(&open(false, None), nothing).unwrap());
        assert!(!is_taken(&library("MPICH Version: 3.3", None, None), nothing).unwrap());
        let told = |text: &'static str| move |name: &str| (name == TOLD).then(|| text.to_owned());
        assert!(is_taken(&open(false, None), told("1")).unwrap());
        assert!(!is_taken(&open(true, None), told(" 0")).unwrap());
        assert!(is_taken(&open(true, None), told("")).unwrap());
        let error = is_taken(&open(true, None), told("yes")).unwrap_err().to_string();
        assert!(error.contains(TOLD) && error.contains("yes"), "{error}");
    }

    #[test]
    fn libraries_that_a_variable_enables_need_the_variable() {
        let one = |wanted: &'static str| move |name: &str| (name == wanted).then(|| "1".to_owned());
        let cray = library("MPI VERSION    : CRAY MPICH version 8.1.28.29 (ANL base 3.4a2)", None, None);
        assert!(is_taken(&cray, one("MPICH_GPU_SUPPORT_ENABLED")).unwrap());
        assert!(!is_taken(&cray, one("MV2_USE_CUDA")).unwrap());
        let ohio = library("MVAPICH2 Version      :\t2.3.7", Some(true), None);
        assert!(is_taken(&ohio, one("MV2_USE_CUDA")).unwrap());
        assert!(!is_taken(&ohio, one("MPICH_GPU_SUPPORT_ENABLED")).unwrap());
    }
}
