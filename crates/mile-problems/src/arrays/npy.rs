//! One array of numbers: from the bytes of NumPy's `.npy` format, or of a tensor.
//!
//! ```text
//! 93 'NUMPY' | major, minor | length of the header (2 bytes, from version 2 on 4) | header | numbers
//! header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//! ```

use std::io::Read;

/// Numbers in the first of these types that holds them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Numbers {
    Bytes(Vec<u8>),
    Whole(Vec<i64>),
    Singles(Vec<f32>),
    Doubles(Vec<f64>),
}

/// An array in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Array {
    pub(super) shape: Vec<usize>,
    pub(super) numbers: Numbers,
}

/// The type of an element in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

impl Element {
    /// Bytes of an element.
    pub(super) fn size(self) -> usize {
        match self {
            Element::Bool | Element::U8 | Element::I8 => 1,
            Element::U16 | Element::I16 => 2,
            Element::U32 | Element::I32 | Element::F32 => 4,
            Element::U64 | Element::I64 | Element::F64 => 8,
        }
    }

    /// The type with this name in NumPy, such as `f4`.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "b1" => Element::Bool,
            "u1" => Element::U8,
            "i1" => Element::I8,
            "u2" => Element::U16,
            "i2" => Element::I16,
            "u4" => Element::U32,
            "i4" => Element::I32,
            "u8" => Element::U64,
            "i8" => Element::I64,
            "f4" => Element::F32,
            "f8" => Element::F64,
            _ => return None,
        })
    }
}

/// The error for a type that is not supported.
pub(super) fn refused_type(name: &str) -> String {
    format!(
        "expected bool, whole numbers, float32 or float64, got elements of type {name}; convert it, as in \
         array.astype('float32')"
    )
}

/// What the beginning of a file says about its numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Header {
    pub(super) shape: Vec<usize>,
    pub(super) element: Element,
    pub(super) big_end: bool,
    pub(super) is_column_major: bool,
}

impl Header {
    /// The header of a `.npy` file, after which its numbers begin; an error says what is wrong with it.
    pub(super) fn read(input: &mut dyn Read) -> Result<Self, String> {
        let damaged = || "damaged or incomplete header".to_owned();
        let mut take = |count: usize| -> Option<Vec<u8>> {
            let mut bytes = Vec::new();
            let read = input.take(count as u64).read_to_end(&mut bytes).ok()?;
            (read == count).then_some(bytes)
        };
        if take(6).as_deref() != Some(b"\x93NUMPY") {
            return Err("not a .npy file: the magic number is missing".into());
        }
        let length = match take(2).as_deref() {
            Some([1, _]) => 2,
            Some([2 | 3, _]) => 4,
            _ => return Err(damaged()),
        };
        let length = take(length).ok_or_else(damaged)?;
        let length = length.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let header = String::from_utf8(take(length).ok_or_else(damaged)?).map_err(|_| damaged())?;
        let field = |name| field(&header, name).ok_or_else(damaged);
        let descr = field("descr")?;
        let name = match descr.chars().next() {
            Some(quote @ ('\'' | '"')) => descr[1..].split(quote).next().unwrap_or_default(),
            _ => return Err("expected an array of numbers, got an array of records".into()),
        };
        let (order, kind) = name.split_at_checked(1).ok_or_else(damaged)?;
        Ok(Self {
            element: Element::named(kind).ok_or_else(|| refused_type(name))?,
            shape: shape(field("shape")?).ok_or_else(damaged)?,
            big_end: order == ">",
            is_column_major: field("fortran_order")?.starts_with("True"),
        })
    }

    /// The array of these bytes.
    pub(super) fn array(self, bytes: &[u8]) -> Result<Array, String> {
        let mut array = Array::new(self.shape, self.element, self.big_end, bytes)?;
        if self.is_column_major {
            array.numbers = match array.numbers {
                Numbers::Bytes(values) => Numbers::Bytes(row_major(&values, &array.shape)),
                Numbers::Whole(values) => Numbers::Whole(row_major(&values, &array.shape)),
                Numbers::Singles(values) => Numbers::Singles(row_major(&values, &array.shape)),
                Numbers::Doubles(values) => Numbers::Doubles(row_major(&values, &array.shape)),
            };
        }
        Ok(array)
    }

    /// Bytes of one sample; an error if there are not `found` bytes of all of them.
    pub(super) fn sample_bytes(&self, found: u64) -> Result<usize, String> {
        let (count, sample) = self.shape.split_first().unwrap_or((&1, &[]));
        let each = sample.iter().try_fold(self.element.size(), |product, n| product.checked_mul(*n));
        match each.filter(|each| each.checked_mul(*count).is_some_and(|all| all as u64 == found)) {
            Some(each) => Ok(each),
            None => Err(unfitting(found, &self.shape)),
        }
    }
}

fn unfitting(found: u64, shape: &[usize]) -> String {
    format!("its {found} bytes of numbers do not match its shape {shape:?}")
}

impl Array {
    /// The array of a `.npy` file; an error says what is wrong with it.
    pub(super) fn of_npy(mut bytes: &[u8]) -> Result<Self, String> {
        Header::read(&mut bytes)?.array(bytes)
    }

    /// Some of its samples, by their numbers.
    pub(super) fn some(self, chosen: &[u32]) -> Self {
        fn pick<V: Copy>(all: &[V], each: usize, chosen: &[u32]) -> Vec<V> {
            chosen.iter().flat_map(|i| &all[*i as usize * each..(*i as usize + 1) * each]).copied().collect()
        }
        let each = self.shape.iter().skip(1).product();
        let numbers = match self.numbers {
            Numbers::Bytes(all) => Numbers::Bytes(pick(&all, each, chosen)),
            Numbers::Whole(all) => Numbers::Whole(pick(&all, each, chosen)),
            Numbers::Singles(all) => Numbers::Singles(pick(&all, each, chosen)),
            Numbers::Doubles(all) => Numbers::Doubles(pick(&all, each, chosen)),
        };
        Self { shape: of_some(&self.shape, chosen), numbers }
    }

    /// The array of these bytes.
    pub(super) fn new(
        shape: Vec<usize>,
        element: Element,
        big_end: bool,
        bytes: &[u8],
    ) -> Result<Self, String> {
        let size = element.size();
        let expected = shape.iter().try_fold(size, |product, n| product.checked_mul(*n));
        if expected != Some(bytes.len()) {
            return Err(unfitting(bytes.len() as u64, &shape));
        }
        let numbers = match element {
            Element::U8 => Numbers::Bytes(bytes.to_vec()),
            Element::F32 => Numbers::Singles(read(bytes, big_end, f32::from_le_bytes)),
            Element::F64 => Numbers::Doubles(read(bytes, big_end, f64::from_le_bytes)),
            Element::U64 => {
                let whole = read(bytes, big_end, |b| i64::try_from(u64::from_le_bytes(b)));
                let whole: Result<_, _> = whole.into_iter().collect();
                Numbers::Whole(whole.map_err(|_| "a number is above 2^63 - 1".to_owned())?)
            }
            Element::Bool => Numbers::Whole(bytes.iter().map(|b| i64::from(*b != 0)).collect()),
            Element::I8 => Numbers::Whole(read(bytes, big_end, |b| i8::from_le_bytes(b).into())),
            Element::U16 => Numbers::Whole(read(bytes, big_end, |b| u16::from_le_bytes(b).into())),
            Element::I16 => Numbers::Whole(read(bytes, big_end, |b| i16::from_le_bytes(b).into())),
            Element::U32 => Numbers::Whole(read(bytes, big_end, |b| u32::from_le_bytes(b).into())),
            Element::I32 => Numbers::Whole(read(bytes, big_end, |b| i32::from_le_bytes(b).into())),
            Element::I64 => Numbers::Whole(read(bytes, big_end, i64::from_le_bytes)),
        };
        Ok(Self { shape, numbers })
    }
}

/// The shape of some samples of an array of this shape.
pub(super) fn of_some(shape: &[usize], chosen: &[u32]) -> Vec<usize> {
    [chosen.len()].into_iter().chain(shape.iter().skip(1).copied()).collect()
}

/// The numbers of these bytes, `N` of which make one.
fn read<V, const N: usize>(bytes: &[u8], big_end: bool, value: impl Fn([u8; N]) -> V) -> Vec<V> {
    let one = |bytes: &[u8; N]| {
        let mut bytes = *bytes;
        if big_end {
            bytes.reverse();
        }
        value(bytes)
    };
    bytes.as_chunks::<N>().0.iter().map(one).collect()
}

/// What follows a key of the header, which is written as a Python dictionary.
fn field<'h>(header: &'h str, name: &str) -> Option<&'h str> {
    let after = |quote: char| header.split_once(&format!("{quote}{name}{quote}")).map(|(_, after)| after);
    let value = after('\'').or_else(|| after('"'))?.trim_start().strip_prefix(':')?;
    Some(value.trim_start())
}

/// A tuple of whole numbers at the beginning of a text.
fn shape(text: &str) -> Option<Vec<usize>> {
    let (inside, _) = text.strip_prefix('(')?.split_once(')')?;
    inside.split(',').map(str::trim).filter(|n| !n.is_empty()).map(|n| n.parse().ok()).collect()
}

/// Column-major numbers in row-major order.
fn row_major<V: Copy>(values: &[V], shape: &[usize]) -> Vec<V> {
    let mut steps: Vec<usize> = Vec::with_capacity(shape.len());
    shape.iter().fold(1, |step, n| {
        steps.push(step);
        step * n
    });
    let mut index = vec![0; shape.len()];
    let mut next = |_: &V| {
        let place: usize = index.iter().zip(&steps).map(|(i, step)| i * step).sum();
        for (i, n) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < *n {
                break;
            }
            *i = 0;
        }
        values[place]
    };
    values.iter().map(&mut next).collect()
}
