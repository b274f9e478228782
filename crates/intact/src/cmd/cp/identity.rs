//! Which volume a side of a copy is, so that a copy is resumed with the same two.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use serde::{Deserialize, Serialize};

use super::endpoint::{Endpoint, file_size};
use crate::cmd::client::told;

/// Where the kernel says which disk a block device is, below `/sys/dev/block/MAJOR:MINOR`: the number alone is that of another
/// disk after the next boot. In order of preference.
const DEVICE_NAMES: [&str; 4] = ["wwid", "device/wwid", "dm/uuid", "loop/backing_file"];

/// What a state says of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// A unit's unique designator, the device and inode number of a file, or the number of a block device and the kernel's name
    /// of its disk.
    name: String,
    bytes: u64,
    /// Of a unit; 1 for a file.
    block_bytes: u32,
    /// The protection information that the blocks get or have: "none", or the tags of the URL.
    protection: String,
}

impl Identity {
    pub fn of(side: &Endpoint) -> Result<Self, String> {
        match side {
            Endpoint::File { file, name, .. } => {
                let failed = |error: std::io::Error| format!("{name}: {error}");
                Ok(Self {
                    name: name_of_file(file).map_err(failed)?,
                    bytes: file_size(file).map_err(failed)?,
                    block_bytes: 1,
                    protection: "none".to_owned(),
                })
            }
            Endpoint::Disk { disk, .. } => {
                let disk = disk.first();
                let name = disk.unique_name().map_err(|error| told(&error))?;
                let name = name.ok_or_else(|| {
                    format!(
                        "LUN {} reports no UUID, NAA, EUI-64 or SCSI name in VPD page 83h, so a later run could not know that it is the \
                         same volume\n  remedy: copy without --state",
                        disk.lun()
                    )
                })?;
                let tags = disk.session().options().protection.filter(|_| disk.protection().is_some());
                Ok(Self {
                    name,
                    bytes: disk.capacity().bytes(),
                    block_bytes: disk.capacity().block_bytes,
                    protection: tags.map_or_else(
                        || "none".to_owned(),
                        |tags| {
                            let ref_tag =
                                tags.ref_tag.map_or_else(String::new, |tag| format!(", ref {tag:08x}h"));
                            format!("app {:04x}h of {:04x}h{ref_tag}", tags.app_tag, tags.app_mask)
                        },
                    ),
                })
            }
        }
    }

    /// Size, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, bytes, block_bytes, protection } = self;
        write!(f, "{name}, {bytes} bytes in blocks of {block_bytes}, protection information: {protection}")
    }
}

fn name_of_file(file: &File) -> std::io::Result<String> {
    let metadata = file.metadata()?;
    let number = |device: u64| format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    if !metadata.file_type().is_block_device() {
        return Ok(format!("file {} of device {}", metadata.ino(), number(metadata.dev())));
    }
    let number = number(metadata.rdev());
    let name = |of: &&str| fs::read_to_string(format!("/sys/dev/block/{number}/{of}")).ok();
    let name = DEVICE_NAMES.iter().find_map(name).unwrap_or_default();
    Ok(format!("block device {number} {}", name.trim()).trim_end().to_owned())
}
