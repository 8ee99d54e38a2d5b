//! The machine the load generator ran on: figures of two machines are not compared unknowingly.

/// A machine, as far as it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The processor's name; the architecture where the kernel does not tell.
    pub cpu: String,
    /// Cores that this program may use.
    pub cores: usize,
    /// The kernel's name and release.
    pub kernel: String,
}

impl Machine {
    /// The machine this program runs on.
    pub(crate) fn here() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel = format!("{} {}", std::env::consts::OS, release.trim());
        Self {
            cpu: model_of(&info).unwrap_or(std::env::consts::ARCH).to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim_end().to_owned(),
        }
    }
}

/// The name of the first processor that the kernel lists, on the architectures where it has one.
fn model_of(info: &str) -> Option<&str> {
    let names = ["model name", "Model", "cpu model"];
    let value =
        |name: &str| info.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name));
    let (_, model) = names.iter().find_map(|name| value(name))?;
    Some(model.trim()).filter(|model| !model.is_empty())
}

#[cfg(test)]
mod tests {
    use super::model_of;

    #[test]
    fn processor_is_named_where_the_kernel_names_it() {
        for (info, model) in [
            (
                "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Fast 3000\nmodel name\t: Slow\n",
                Some("Fast 3000"),
            ),
            ("processor : 0\nBogoMIPS : 50\n\nModel\t: Board 5\n", Some("Board 5")),
            ("processor : 0\nmodel name :\n", None),
            ("", None),
        ] {
            assert_eq!(model_of(info), model, "{info}");
        }
    }
}
