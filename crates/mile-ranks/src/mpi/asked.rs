//! Asks the MPI library about GPU memory, through functions that not all libraries have: they are looked up in the running program, so
//! that it can be built with any MPI.

use std::ffi::{CStr, c_char, c_int, c_void};

use libloading::os::unix::{Library as Program, Symbol};
use mpi::environment::library_version;

use crate::device_memory::Library;

/// `MPIX_GPU_SUPPORT_CUDA`, of MPICH.
const CUDA: c_int = 0;
/// The setting with which Open MPI uses CUDA.
const SETTING: &CStr = c"opal_cuda_support";

type Query = unsafe extern "C" fn() -> c_int;
type QueryOf = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;

/// What the library reports, once MPI has been initialised.
pub(super) fn library() -> Library {
    let program = Program::this();
    Library {
        version: library_version().unwrap_or_default(),
        is_built_for_cuda: is_built_for_cuda(&program),
        is_switched_on: is_switched_on(&program),
    }
}

/// A function of the library, if it has one with this name.
///
/// # Safety
/// The function has this type.
unsafe fn function<F>(program: &Program, name: &CStr) -> Option<Symbol<F>> {
    // SAFETY: promised by the caller.
    unsafe { program.get(name) }.ok()
}

fn is_built_for_cuda(program: &Program) -> Option<bool> {
    // SAFETY: Open MPI and MPICH document these functions with these types.
    let (query, query_of) = unsafe {
        (
            function::<Query>(program, c"MPIX_Query_cuda_support"),
            function::<QueryOf>(program, c"MPIX_GPU_query_support"),
        )
    };
    if let Some(query) = query {
        // SAFETY: it has no arguments.
        return Some(unsafe { query() } == 1);
    }
    let mut is_supported = 0;
    // SAFETY: it writes one number; 0, `MPI_SUCCESS`, means that it did.
    let found = query_of.map(|query| unsafe { query(CUDA, &mut is_supported) } == 0);
    found.map(|is_known| is_known && is_supported != 0)
}

/// Reads Open MPI's setting through MPI's interface for tools. It is off where the driver was not found.
fn is_switched_on(program: &Program) -> Option<bool> {
    // SAFETY: the MPI standard declares these functions with these types, except for the handle, which is a pointer in the library that
    // has this setting.
    unsafe {
        let begin: Symbol<unsafe extern "C" fn(c_int, *mut c_int) -> c_int> =
            function(program, c"MPI_T_init_thread")?;
        let end: Symbol<unsafe extern "C" fn() -> c_int> = function(program, c"MPI_T_finalize")?;
        let index_of: Symbol<unsafe extern "C" fn(*const c_char, *mut c_int) -> c_int> =
            function(program, c"MPI_T_cvar_get_index")?;
        let open: Symbol<unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void, *mut c_int) -> c_int> =
            function(program, c"MPI_T_cvar_handle_alloc")?;
        let read: Symbol<unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int> =
            function(program, c"MPI_T_cvar_read")?;
        let close: Symbol<unsafe extern "C" fn(*mut *mut c_void) -> c_int> =
            function(program, c"MPI_T_cvar_handle_free")?;
        let (mut threads, mut index, mut count) = (0, 0, 0);
        // Open MPI writes only the first byte of the 32-bit number: the others stay zero.
        let (mut handle, mut value) = (std::ptr::null_mut(), [0 as c_int; 4]);
        if begin(0, &mut threads) != 0 {
            return None;
        }
        let mut is_read = index_of(SETTING.as_ptr(), &mut index) == 0
            && open(index, std::ptr::null_mut(), &mut handle, &mut count) == 0;
        if is_read {
            is_read = count == 1 && read(handle, value.as_mut_ptr().cast()) == 0;
            close(&mut handle);
        }
        end();
        is_read.then_some(value[0] != 0)
    }
}
