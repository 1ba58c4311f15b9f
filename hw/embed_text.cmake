# cmake -DOUT=FILE.cc -DSYMBOL=name -DFILES=a|b|c -P embed_text.cmake
# Writes FILE.cc, which defines kneepoint::hw::bundled::name() over the texts.
string(REPLACE "|" ";" files "${FILES}")
set(rows "")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME_WLE)
  file(READ "${file}" text)
  string(APPEND rows "    {\"${name}\", R\"~~~(${text})~~~\"},\n")
endforeach()
file(WRITE "${OUT}" "#include \"hw/embedded_text.h\"

namespace kneepoint::hw::bundled {
namespace {
constexpr EmbeddedText kTexts[] = {
${rows}};
}  // namespace
std::span<const EmbeddedText> ${SYMBOL}() { return kTexts; }
}  // namespace kneepoint::hw::bundled
")
