# Appended to the recipe for Ruby, above `Use it`. Answers cases: see tests/it/recipes.rs.
given = JSON.parse(File.read(ARGV[0]), symbolize_names: true)
answers = given[:cases].to_h do |one|
  one[:order] ? verify(one[:token], one[:order], given[:keys], one[:now]) : signed(one[:token], given[:keys])
  [one[:name], nil]
rescue StandardError => refused
  [one[:name], refused.class.name]
end
puts JSON.generate(answers)
