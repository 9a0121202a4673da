//! Compiles kernels with NVRTC, and keeps the compiled kernels on disk.

use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use atomic_write_file::AtomicWriteFile;
use cudarc::nvrtc::{result, sys};
use sha2::{Digest, Sha256};

use crate::device::DeviceError;
use crate::kernels::PRELUDE;

/// Options that do not depend on the device. Products and sums are fused where the sources do not round them one by one.
const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=true"];
/// Bytes of the checksum before an image.
const CHECKSUM: usize = 32;

/// Whether NVRTC is available.
pub(super) fn check() -> Result<(), DeviceError> {
    // SAFETY: loading NVRTC's library has no preconditions.
    if unsafe { sys::is_culib_present() } { Ok(()) } else { Err(DeviceError::NoCompiler) }
}

/// The compiled kernels of a source: from the cache, or compiled and written there. A cache that cannot be used is not an error.
pub(super) fn image(source: &str, capability: u32, cache: Option<&Path>) -> Result<Vec<u8>, DeviceError> {
    let source = format!("{PRELUDE}\n{source}");
    let options: Vec<String> = OPTIONS
        .iter()
        .map(|option| (*option).to_owned())
        .chain([format!("--gpu-architecture=sm_{capability}")])
        .collect();
    let path = cache.map(|cache| cache.join(format!("{}.cubin", key(&source, &options, version()))));
    if let Some(image) = path.as_deref().and_then(read) {
        return Ok(image);
    }
    let image = compile(&source, &options)?;
    if let Some(path) = path {
        let _ = write(&path, &image);
    }
    Ok(image)
}

/// What an image depends on.
fn key(source: &str, options: &[String], (major, minor): (i32, i32)) -> String {
    let mut hash = Sha256::new();
    for part in [source, &options.join(" "), &format!("{major}.{minor}")] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let mut text = String::new();
    for byte in &hash.finalize()[..16] {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// An image from the cache, if it is intact.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(path).ok()?;
    let image = bytes.split_off_checked(CHECKSUM)?;
    (Sha256::digest(&image)[..] == bytes[..]).then_some(image)
}

fn write(path: &Path, image: &[u8]) -> std::io::Result<()> {
    path.parent().map(std::fs::create_dir_all).transpose()?;
    let mut file = AtomicWriteFile::open(path)?;
    file.write_all(&Sha256::digest(image))?;
    file.write_all(image)?;
    file.commit()
}

/// `split_off`, or `None` if there are fewer bytes.
trait SplitOff: Sized {
    fn split_off_checked(&mut self, at: usize) -> Option<Self>;
}

impl SplitOff for Vec<u8> {
    fn split_off_checked(&mut self, at: usize) -> Option<Self> {
        (self.len() >= at).then(|| self.split_off(at))
    }
}

fn version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: it writes two numbers. On failure they stay 0, which is as good a key.
    let _ = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    (major, minor)
}

fn compile(source: &str, options: &[String]) -> Result<Vec<u8>, DeviceError> {
    let failed = |error: result::NvrtcError| DeviceError::Compile(error.to_string());
    let text = CString::new(source).map_err(|e| DeviceError::Compile(e.to_string()))?;
    let program = result::create_program(&text, Some(c"mile.cu")).map_err(failed)?;
    // SAFETY: the program was created above and is destroyed below, after its last use.
    let image = unsafe {
        match result::compile_program(program, options) {
            Ok(()) => cubin(program).map_err(failed),
            Err(error) => {
                let log = result::get_program_log(program).unwrap_or_default();
                let log: Vec<u8> = log.into_iter().map(|c| c as u8).collect();
                let log = CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().into_owned());
                Err(DeviceError::Compile(format!("{error}\n{}", log.unwrap_or_default())))
            }
        }
    };
    // SAFETY: as above.
    unsafe { result::destroy_program(program) }.map_err(failed)?;
    image
}

/// # Safety
/// The program was compiled for a real architecture and not destroyed.
unsafe fn cubin(program: sys::nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    let mut size = 0;
    // SAFETY: promised by the caller; the image has as many bytes as NVRTC says.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &mut size).result()?;
        let mut image = vec![0u8; size];
        sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()).result()?;
        Ok(image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_not_intact_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper").join("a.cubin");
        assert_eq!(read(&path), None);
        write(&path, b"an image").unwrap();
        assert_eq!(read(&path).unwrap(), b"an image");
        for damage in [&b""[..], &b"short"[..]] {
            std::fs::write(&path, damage).unwrap();
            assert_eq!(read(&path), None);
        }
        write(&path, b"an image").unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(read(&path), None);
    }

    #[test]
    fn the_key_depends_on_everything_the_image_depends_on() {
        let options = |text: &str| vec![text.to_owned()];
        let first = key("a", &options("b"), (13, 0));
        assert_eq!(first, key("a", &options("b"), (13, 0)));
        for other in [
            key("ab", &options(""), (13, 0)),
            key("a", &options("c"), (13, 0)),
            key("a", &options("b"), (13, 1)),
        ] {
            assert_ne!(first, other);
        }
    }
}
