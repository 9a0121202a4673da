//! Names of devices.

use std::str::FromStr;

/// Where the agents of a run compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU if there is one, otherwise the CPU.
    Auto,
    /// The CPU.
    #[default]
    Cpu,
    /// The NVIDIA GPU with this number, counted from 0.
    Cuda(usize),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let number = text.strip_prefix("cuda:").and_then(|number| number.parse().ok());
                number.map(Self::Cuda).ok_or_else(|| {
                    "expected auto, cpu, cuda, or cuda:K for GPU number K, counted from 0".into()
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_and_anything_else_is_refused() {
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(3)));
        assert_eq!("auto".parse(), Ok(DeviceChoice::Auto));
        for wrong in ["gpu", "cuda:", "cuda:-1", "cuda:x", ""] {
            assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong}");
        }
    }
}
