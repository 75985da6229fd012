// bf16 on the host, as 16 bits.

#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct BFloat16(u16);

impl BFloat16 {
    /// Rounds to nearest, ties to even. The value must not be a NaN.
    pub fn from_f32(value: f32) -> BFloat16 {
        let bits = value.to_bits();
        BFloat16(((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16)
    }
    pub fn to_f64(self) -> f64 {
        f64::from(f32::from_bits(u32::from(self.0) << 16))
    }
}
